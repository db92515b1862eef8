"""The ledger of a run: each round is on the disk before the pool learns of it, and is replayed after a crash."""

import csv
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_diffal.pool.folder.files import write_atomically
from lightning_diffal.pool.folder.json_lines import DamagedLineError, JsonLines
from lightning_diffal.pool.label_pool import LabelPool, check_reveal
from lightning_diffal.pool.ledger_entries import (
    EntryCheck,
    RunIdentity,
    awaited_round,
    class_names,
    given_up,
    labels_of,
    merge_entries,
    without_corrections,
)
from lightning_diffal.pool.record import Answered, Correction, Entry, Record, entry_from_json


class Ledger:
    """The records of a run, in `rounds.jsonl`; without a folder, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.file = JsonLines(folder / "rounds.jsonl") if folder is not None else None
        self.entries: list[Entry] = []
        self.records: list[Record] = []
        """The rounds, with their answers and as these were corrected since."""

    @property
    def corrections(self) -> list[Correction]:
        return [entry for entry in self.entries if isinstance(entry, Correction)]

    @property
    def awaited(self) -> Record | None:
        """The round whose question has no answer yet."""
        return awaited_round(self.entries)

    @property
    def given_up(self) -> set[int]:
        """Points that someone skipped or could not tell: never trained on, not asked again."""
        return given_up(self.entries)

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, where people answer by name."""
        return class_names(self.entries)

    def read(self, identity: RunIdentity) -> list[Entry]:
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

    def replay(self, entries: Sequence[Entry], pool: LabelPool) -> None:
        """Apply lines that were read to an empty pool."""
        records = merge_entries(entries)
        for record in records:
            try:
                pool.reveal(*labels_of(record))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.file and self.file.path}, round {record.round}: {error}") from error
        self.entries, self.records = list(entries), records

    def append(self, entry: Record | Answered, pool: LabelPool) -> None:
        """Write a round, a question or answers to the disk, then apply it."""
        check_reveal(pool.labels, *labels_of(entry))
        if self.file is not None:
            self.file.append(entry.to_json())
        self.apply(entry, pool)
        self.write_selection()

    def complete(self, record: Record, pool: LabelPool) -> None:
        """Put a round with its labels in the place of its question, which is the last line."""
        check_reveal(pool.labels, *labels_of(record))
        if self.file is not None:
            self.file.replace_last(record.to_json())
        self.apply_completion(record, pool)
        self.write_selection()

    def apply_completion(self, record: Record, pool: LabelPool) -> None:
        self.entries.pop()
        self.apply(record, pool)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write lines to the disk that are still to be applied."""
        for entry in entries if self.file is not None else ():
            self.file.append(entry.to_json())  # type: ignore[union-attr]

    def correct(self, correction: Correction) -> None:
        """Write corrected labels to the disk. A run that is opened later trains on them."""
        if self.file is not None:
            self.file.append(correction.to_json())
        self.entries.append(correction)
        self.records = merge_entries(self.entries)
        self.write_selection()

    def apply(self, entry: Record | Answered, pool: LabelPool) -> None:
        """Reveal to the pool what is on the disk."""
        pool.reveal(*labels_of(entry))
        self.entries.append(entry)
        self.records = merge_entries(self.entries)

    def entries_beyond(self, lines: Sequence[dict[str, Any]], identity: RunIdentity) -> list[Record | Answered]:
        """The lines of a checkpoint that the ledger does not have, as when its folder was lost."""
        try:
            theirs = without_corrections([entry for line in lines if (entry := entry_from_json(line)) is not None])
            check = EntryCheck(identity)
            for entry in theirs:
                check(entry)
            ours, known = questions(self.entries), questions(theirs)
            if known[: len(ours)] != ours[: len(known)]:
                raise ValueError("its queries are not those in the ledger.")
        except ValueError as error:
            raise ValueError(f"The checkpoint does not belong to the run in {self.folder}: {error}") from error
        if len(known) < len(ours):
            return []
        return [
            entry
            for entry in theirs
            if (entry.round >= len(ours) if isinstance(entry, Record) else entry not in self.entries)
        ]

    def write_selection(self) -> None:
        """`selection.csv`, a table for people. Nothing reads it, so a run goes on without it."""
        if self.folder is None:
            return
        try:
            write_atomically(self.folder / "selection.csv", self.write_table)
        except OSError as error:
            warnings.warn(
                f"{self.folder / 'selection.csv'} cannot be written ({error}). The run continues: this table is "
                "only for people to read, the labels are in rounds.jsonl.",
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
                    (index, record.round, *("" if value is None else value for value in (score, reached, label)))
                    for index, score, reached, label in rows
                )


def questions(entries: Sequence[Entry]) -> list[tuple[int, list[int]]]:
    return [(entry.round, entry.indices) for entry in entries if isinstance(entry, Record)]


def finite_or_none(value: float) -> float | None:
    """A number as JSON can hold it: None where it is not finite."""
    return value if math.isfinite(value) else None
