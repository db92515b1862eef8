"""The memory of a run: written before it is believed, replayed after a crash."""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

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
    """Who chose, with all its parameters."""
    seeds: dict[str, int]
    """`run`, as the user gave it, and `round`, made from it."""
    initial: str
    """How the first labels were found."""
    dataset: str
    """The dataset's fingerprint."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """The last value of every metric of the fit."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What the fit and the stages of the query took."""
    steps: int = 0
    """Optimizer steps of the fit."""
    unreached: int | None = None
    """Unlabeled points that no label had reached before the query."""
    last: str | None = None
    """Why the run was over after this round, if it was: "budget", "pool" (nothing left to ask) or "stop_when"."""

    @staticmethod
    def parsed(line: dict[str, Any]) -> "Record":
        known = {part.name for part in fields(Record)}
        missing = sorted({"round", "indices", "labels", "dataset"} - line.keys())
        if missing:
            raise ValueError(f"a line of a ledger needs {', '.join(missing)}.")
        return Record(**{name: value for name, value in line.items() if name in known})


class Ledger:
    """The records of a run, in `rounds.jsonl`; without a folder, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.lines = JsonLines(folder / "rounds.jsonl") if folder is not None else None
        self.records: list[Record] = []

    def open(self, pool: LabelPool | None, **kinship: Any) -> None:
        """Read what is there and reveal it to an empty pool. What belongs to another run or dataset is refused.

        Args:
            kinship: What records of this run have in common: selector, seed, initial and, once it is known, dataset.
        """
        lines = self.lines.read() if self.lines is not None else []
        for number, line in enumerate(lines):
            try:
                record = Record.parsed(line)
                check_kinship(record, number, kinship)
                if pool is not None:
                    pool.reveal(record.indices, record.labels)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.lines and self.lines.path}, line {number + 1}: {error}") from error
            self.records.append(record)

    def append(self, record: Record, pool: LabelPool) -> None:
        """Write a round to the disk, then let the pool know."""
        check_reveal(pool.labels, record.indices, record.labels)
        if self.lines is not None:
            self.lines.append(asdict(record))
        self.hear(record, pool)
        self.write_selection()

    def hear(self, record: Record, pool: LabelPool) -> None:
        """Believe what is on the disk already."""
        pool.reveal(record.indices, record.labels)
        self.records.append(record)

    def missing(self, lines: Sequence[dict[str, Any]], **kinship: Any) -> list[Record]:
        """The rounds that a checkpoint remembers and the ledger does not, as when its folder was lost."""
        ours = [(record.round, record.indices) for record in self.records]
        theirs = [Record.parsed(line) for line in lines]
        try:
            for number, record in enumerate(theirs):
                check_kinship(record, number, kinship)
            if [(record.round, record.indices) for record in theirs[: len(ours)]] != ours[: len(theirs)]:
                raise ValueError("its queries are others than those in the ledger.")
        except ValueError as error:
            raise ValueError(f"The checkpoint does not belong to the run in {self.folder}: {error}") from error
        return theirs[len(ours) :]

    def write_selection(self) -> None:
        """`selection.csv`, for people: every label, when it was asked for and why."""
        if self.folder is None:
            return
        path = self.folder / "selection.csv"
        fresh = path.with_suffix(".tmp")
        with fresh.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["index", "round", "score", "reached", "label"])
            for record in self.records:
                rows = zip(record.indices, record.scores, record.reached, record.labels, strict=True)
                writer.writerows(
                    (index, record.round, "" if score is None else score, "" if reached is None else reached, label)
                    for index, score, reached, label in rows
                )
        os.replace(fresh, path)  # noqa: PTH105, atomic, and a Path says no more


def check_kinship(record: Record, number: int, kinship: dict[str, Any]) -> None:
    """Refuse a record of another run."""
    if record.round != number:
        raise ValueError(f"round {record.round} where round {number} was expected: a line is missing or doubled.")
    if record.dataset != kinship.get("dataset", record.dataset):
        raise ValueError(
            f"this run was made on another dataset (fingerprint {record.dataset}, now {kinship['dataset']}). Its "
            "indices would name other points. Was the data split anew? A generator with a fixed seed keeps a split."
        )
    theirs = {"selector": record.selector, "seed": record.seeds.get("run"), "initial": record.initial}
    for name, value in theirs.items():
        if value != kinship[name]:
            raise ValueError(
                f"this is the ledger of another run, with {name}={value!r} where {name}={kinship[name]!r} is given. "
                "Give this run a folder of its own, folder=..., or remove the old one."
            )


def plain(value: float) -> float | None:
    """A number as JSON can hold it: None where it is not finite."""
    return value if math.isfinite(value) else None
