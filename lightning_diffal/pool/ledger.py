"""The ledger of a run: each round is on the disk before the pool learns of it, and is replayed after a crash."""

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from lightning_diffal.pool.files import write_atomically
from lightning_diffal.pool.json_lines import JsonLines
from lightning_diffal.pool.label_pool import LabelPool, check_reveal


@dataclass(frozen=True, kw_only=True)
class Record:
    """One round: a fit, and the query after it. Round 0 is the first labels, before any fit."""

    round: int
    labeled: int
    """Points that the fit of this round was trained on."""
    indices: list[int]
    labels: list[int]
    scores: list[float | None]
    reached: list[bool | None]
    selector: str
    """The selector that chose, with all its parameters."""
    seeds: dict[str, int]
    """`run`, as the user gave it, and `round`, derived from it."""
    initial: str
    """How the first labels were chosen."""
    dataset: str
    """The dataset's fingerprint."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """The last value of every metric of the fit."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of the fit and of each stage of the query."""
    steps: int = 0
    """Optimizer steps of the fit."""
    unreached: int | None = None
    """Unlabeled points that no label had reached before the query."""
    last: str | None = None
    """Why the run was over after this round, if it was: "budget", "pool" (nothing left to ask) or "stop_when"."""

    @staticmethod
    def from_json(line: dict[str, Any]) -> "Record":
        known = {part.name for part in fields(Record)}
        missing = sorted({"round", "indices", "labels", "dataset"} - line.keys())
        if missing:
            raise ValueError(f"a line of a ledger needs {', '.join(missing)}.")
        return Record(**{name: value for name, value in line.items() if name in known})


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What all rounds of one run have in common. Budget and query size may change during a run."""

    selector: str
    seed: int
    initial: str
    dataset: str | None = None
    """The dataset's fingerprint; None before it is known, and then not compared."""

    def check(self, record: Record, number: int) -> None:
        """Refuse a record that is not round `number` of this run."""
        if record.round != number:
            raise ValueError(f"round {record.round} where round {number} was expected: a line is missing or doubled.")
        if self.dataset is not None and record.dataset != self.dataset:
            raise ValueError(
                f"this run was made on another dataset (fingerprint {record.dataset}, now {self.dataset}). Its indices "
                "would name other points. Was the data split again? A generator with a fixed seed keeps a split."
            )
        theirs = {"selector": record.selector, "seed": record.seeds.get("run"), "initial": record.initial}
        for name, value in theirs.items():
            ours = getattr(self, name)
            if value != ours:
                raise ValueError(
                    f"this is the ledger of another run, with {name}={value!r} where {name}={ours!r} is given. "
                    "Give this run a folder of its own, folder=..., or remove the old one."
                )


class Ledger:
    """The records of a run, in `rounds.jsonl`; without a folder, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.file = JsonLines(folder / "rounds.jsonl") if folder is not None else None
        self.records: list[Record] = []

    def read(self, identity: RunIdentity) -> list[Record]:
        """The records on the disk. Those of another run or dataset are refused with file and line."""
        records = []
        for number, line in enumerate(self.file.read() if self.file is not None else []):
            try:
                record = Record.from_json(line)
                identity.check(record, number)
            except (ValueError, TypeError) as error:
                raise ValueError(self.at_line(number, error)) from error
            records.append(record)
        return records

    def recorded_dataset(self) -> str | None:
        """The fingerprint of the dataset the run began with, None if it has not begun."""
        lines = self.file.read() if self.file is not None else []
        return lines[0].get("dataset") if lines else None

    def replay(self, records: Sequence[Record], pool: LabelPool) -> None:
        """Apply records that were read to an empty pool."""
        for number, record in enumerate(records):
            try:
                self.apply(record, pool)
            except (ValueError, TypeError) as error:
                raise ValueError(self.at_line(number, error)) from error

    def append(self, record: Record, pool: LabelPool) -> None:
        """Write a round to the disk, then apply it."""
        check_reveal(pool.labels, record.indices, record.labels)
        if self.file is not None:
            self.file.append(asdict(record))
        self.apply(record, pool)
        if self.folder is not None:
            write_atomically(self.folder / "selection.csv", self.write_selection)

    def apply(self, record: Record, pool: LabelPool) -> None:
        """Reveal to the pool a round that is on the disk."""
        pool.reveal(record.indices, record.labels)
        self.records.append(record)

    def records_beyond(self, lines: Sequence[dict[str, Any]], identity: RunIdentity) -> list[Record]:
        """The rounds of a checkpoint that the ledger does not have, as when its folder was lost."""
        ours = [(record.round, record.indices) for record in self.records]
        theirs = [Record.from_json(line) for line in lines]
        try:
            for number, record in enumerate(theirs):
                identity.check(record, number)
            if [(record.round, record.indices) for record in theirs[: len(ours)]] != ours[: len(theirs)]:
                raise ValueError("its queries are not those in the ledger.")
        except ValueError as error:
            raise ValueError(f"The checkpoint does not belong to the run in {self.folder}: {error}") from error
        return theirs[len(ours) :]

    def write_selection(self, path: Path) -> None:
        """A table for people: every label, when it was asked for and why."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["index", "round", "score", "reached", "label"])
            for record in self.records:
                rows = zip(record.indices, record.scores, record.reached, record.labels, strict=True)
                writer.writerows(
                    (index, record.round, "" if score is None else score, "" if reached is None else reached, label)
                    for index, score, reached, label in rows
                )

    def at_line(self, number: int, error: Exception) -> str:
        return f"{self.file and self.file.path}, line {number + 1}: {error}"


def finite_or_none(value: float) -> float | None:
    """A number as JSON can hold it: None where it is not finite."""
    return value if math.isfinite(value) else None
