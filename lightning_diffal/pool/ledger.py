"""The ledger of a run: each round is on the disk before the pool learns of it, and is replayed after a crash."""

import csv
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_diffal.pool.dataset.fingerprint import size_of
from lightning_diffal.pool.folder.files import write_atomically
from lightning_diffal.pool.folder.json_lines import DamagedLineError, JsonLines
from lightning_diffal.pool.label_pool import LabelPool, check_reveal
from lightning_diffal.pool.record import Correction, Record, entry_from_json


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What all rounds of one run have in common. Budget and query size may change during a run."""

    selector: str
    seed: int
    initial: str
    features: str | None = None
    """Where the fixed features come from, None if there are none."""
    dataset: str | None = None
    """The dataset's fingerprint; None before it is known, and then not compared."""

    @staticmethod
    def of(record: Record) -> "RunIdentity":
        return RunIdentity(
            selector=record.selector,
            seed=record.seeds["run"],
            initial=record.initial,
            features=record.features,
            dataset=record.dataset,
        )

    def check(self, record: Record, number: int) -> None:
        """Refuse a record that is not round `number` of this run."""
        if record.round != number:
            raise ValueError(f"round {record.round} where round {number} was expected: a line is missing or doubled.")
        if self.dataset is not None and record.dataset != self.dataset:
            raise ValueError(other_dataset("this run was made", record.dataset, self.dataset))
        theirs = {
            "selector": record.selector,
            "seed": record.seeds["run"],
            "initial": record.initial,
            "features": record.features,
        }
        for name, value in theirs.items():
            ours = getattr(self, name)
            if value != ours:
                raise ValueError(
                    f"this is the ledger of another run, with {name}={value!r} where {name}={ours!r} is given. "
                    "Give this run a folder of its own, folder=..., or remove the old one."
                )


def other_dataset(what: str, theirs: str, ours: str) -> str:
    return (
        f"{what} on another dataset (fingerprint {theirs}, now {ours}). Its indices would name other points. "
        "Was the data split again? A generator with a fixed seed keeps a split."
    )


class Ledger:
    """The records of a run, in `rounds.jsonl`; without a folder, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.file = JsonLines(folder / "rounds.jsonl") if folder is not None else None
        self.records: list[Record] = []
        """The rounds, with the labels as they were corrected since."""
        self.corrections: list[Correction] = []

    def read(self, identity: RunIdentity) -> list[Record | Correction]:
        """The lines on the disk. Those of another run or dataset are refused with file and line."""
        if self.file is None:
            return []
        entries = []
        check = EntryCheck(identity)
        for number, line in enumerate(self.file.read(), start=1):
            try:
                entry = entry_from_json(line)
                if entry is not None:
                    check(entry)
                    entries.append(entry)
            except (ValueError, TypeError) as error:
                raise DamagedLineError(self.file.path, number, error) from error
        return entries

    def recorded_dataset(self) -> str | None:
        """The fingerprint of the dataset the run began with, None if it has not begun."""
        lines = self.file.read() if self.file is not None else []
        dataset = lines[0].get("dataset") if lines else None
        return dataset if isinstance(dataset, str) else None

    def replay(self, entries: Sequence[Record | Correction], pool: LabelPool) -> None:
        """Apply lines that were read to an empty pool."""
        self.corrections = [entry for entry in entries if isinstance(entry, Correction)]
        for record in corrected_records(entries):
            try:
                self.apply(record, pool)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.file and self.file.path}, round {record.round}: {error}") from error

    def append(self, record: Record, pool: LabelPool) -> None:
        """Write a round to the disk, then apply it."""
        check_reveal(pool.labels, record.indices, record.labels)
        if self.file is not None:
            self.file.append(record.to_json())
        self.apply(record, pool)
        self.write_selection()

    def correct(self, correction: Correction) -> None:
        """Write corrected labels to the disk. A run that is opened later trains on them."""
        if self.file is not None:
            self.file.append(correction.to_json())
        self.corrections.append(correction)
        self.records = corrected_records([*self.records, correction])
        self.write_selection()

    def apply(self, record: Record, pool: LabelPool) -> None:
        """Reveal to the pool a round that is on the disk."""
        pool.reveal(record.indices, record.labels)
        self.records.append(record)

    def records_beyond(self, lines: Sequence[dict[str, Any]], identity: RunIdentity) -> list[Record]:
        """The rounds of a checkpoint that the ledger does not have, as when its folder was lost."""
        ours = [(record.round, record.indices) for record in self.records]
        try:
            theirs = [Record.from_json(line) for line in lines]
            for number, record in enumerate(theirs):
                identity.check(record, number)
            if [(record.round, record.indices) for record in theirs[: len(ours)]] != ours[: len(theirs)]:
                raise ValueError("its queries are not those in the ledger.")
        except ValueError as error:
            raise ValueError(f"The checkpoint does not belong to the run in {self.folder}: {error}") from error
        return theirs[len(ours) :]

    def write_selection(self) -> None:
        """`selection.csv`, a table for people. Nothing reads it, so a run goes on without it."""
        if self.folder is None:
            return
        try:
            write_atomically(self.folder / "selection.csv", self.write_table)
        except OSError as error:
            warnings.warn(
                f"{self.folder / 'selection.csv'} cannot be written ({error}). It is for people to read; the run goes "
                "on, its labels are in rounds.jsonl.",
                stacklevel=3,
            )

    def write_table(self, path: Path) -> None:
        """Every label, when it was asked for and why."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["index", "round", "score", "reached", "label"])
            for record in self.records:
                rows = zip(record.indices, record.scores, record.reached, record.labels, strict=True)
                writer.writerows(
                    (index, record.round, "" if score is None else score, "" if reached is None else reached, label)
                    for index, score, reached, label in rows
                )


class EntryCheck:
    """Whether each line of a ledger can follow those before it."""

    def __init__(self, identity: RunIdentity) -> None:
        self.identity, self.rounds = identity, 0
        self.labels: dict[int, int] = {}

    def __call__(self, entry: Record | Correction) -> None:
        if isinstance(entry, Record):
            self.identity.check(entry, self.rounds)
            if entry.labeled != len(self.labels):
                raise ValueError(
                    f"labeled must be {len(self.labels)}, the number of labels in the lines before, it is "
                    f"{entry.labeled}."
                )
            check_points(entry.indices, self.labels, size_of(entry.dataset))
            self.rounds += 1
        else:
            unknown = [index for index in entry.indices if index not in self.labels]
            if unknown:
                raise ValueError(f"point {unknown[0]} has no label that could be corrected.")
            if entry.was != [self.labels[index] for index in entry.indices]:
                raise ValueError("was must be the labels before, as the lines before have them.")
        self.labels.update(zip(entry.indices, entry.labels, strict=True))


def check_points(indices: Sequence[int], known: dict[int, int], size: int | None) -> None:
    """Refuse points outside the pool, points twice and points that have a label already."""
    outside = [index for index in indices if index < 0 or (size is not None and index >= size)]
    if outside:
        raise ValueError(f"index {outside[0]} is out of range: the pool has {size} points, counted from 0.")
    again = [index for index in indices if index in known]
    if again:
        raise ValueError(f"point {again[0]} has a label already, {known[again[0]]}. Labels are never asked twice.")
    if len(set(indices)) != len(indices):
        raise ValueError("a point is named twice.")


def corrected_records(entries: Sequence[Record | Correction]) -> list[Record]:
    """The rounds with the labels that were given last."""
    latest = {
        index: label
        for entry in entries
        if isinstance(entry, Correction)
        for index, label in zip(entry.indices, entry.labels, strict=True)
    }
    records = [entry for entry in entries if isinstance(entry, Record)]
    if not latest:
        return records
    return [
        replace(
            record,
            labels=[latest.get(index, label) for index, label in zip(record.indices, record.labels, strict=True)],
        )
        for record in records
    ]


def finite_or_none(value: float) -> float | None:
    """A number as JSON can hold it: None where it is not finite."""
    return value if math.isfinite(value) else None
