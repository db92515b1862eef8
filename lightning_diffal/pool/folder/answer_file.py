"""`answers.jsonl`: what an oracle answered, on the disk before it is used."""

import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lightning_diffal.pool.dataset.fingerprint import size_of
from lightning_diffal.pool.folder.files import reserve
from lightning_diffal.pool.folder.json_lines import DamagedLineError, JsonLines
from lightning_diffal.pool.ledger_entries import check_points, other_dataset
from lightning_diffal.pool.record import Correction, check_field, check_length, is_count

NAME: Final = "answers.jsonl"

# Bytes of a line of the file with one answer, and room for the ledger's own line.
BYTES_PER_ANSWER: Final = 256
BYTES_PER_QUERY: Final = 2**13


class AnswerFile:
    """The answers of an oracle about the points of one dataset.

    Args:
        dataset: The dataset's fingerprint: answers about another one are refused.
    """

    def __init__(self, folder: Path, dataset: str | None) -> None:
        self.file, self.dataset = JsonLines(folder / NAME), dataset
        self.labels: dict[int, int] = {}
        self.lines: dict[int, int] = {}
        """The line of the file that has the answer about a point."""

    def read(self, in_ledger: Collection[int]) -> None:
        """Read what is there.

        Args:
            in_ledger: Points that the ledger has labels of: what is stored about them is not used any more.
        """
        answers = StoredAnswers(self.file.path, self.dataset)
        for number, line in enumerate(self.file.read(), start=1):
            answers.add(number, line)
        if answers.undated and not in_ledger and self.dataset is not None:
            warnings.warn(
                f"{self.file.path} was written by an older version, which did not note the dataset it is about, and "
                "there is no ledger to tell. It is taken to be about this one: the same points in the same order.",
                stacklevel=2,
            )
        for index, label in answers.labels.items():
            if index not in in_ledger:
                answers.check(index)
            if is_count(label):
                self.labels[index], self.lines[index] = label, answers.lines[index]

    def reserve(self, num_answers: int) -> None:
        """Refuse to ask if the answers could not be stored."""
        size = self.file.size + BYTES_PER_ANSWER * num_answers + BYTES_PER_QUERY
        try:
            self.file.path.parent.mkdir(parents=True, exist_ok=True)
            reserve(self.file.path, size)
            with self.file.path.open("ab"):
                pass
        except OSError as error:
            raise OSError(
                error.errno,
                f"{self.file.path} cannot be written ({error}). The oracle was not asked: its answers would be lost",
            ) from error

    def store(self, indices: Sequence[int], labels: Sequence[int]) -> None:
        """Answers that were checked."""
        line = {"kind": "answer", "dataset": self.dataset, "indices": list(indices), "labels": list(labels)}
        try:
            self.file.append(line)
        except OSError as error:
            answers = dict(zip(indices, labels, strict=True))
            raise OSError(
                error.errno, f"{self.file.path} cannot be written ({error}). These answers are not stored: {answers}"
            ) from error
        self.labels.update(zip(indices, labels, strict=True))

    def correct(self, correction: Correction) -> None:
        self.file.append({**correction.to_json(), "dataset": self.dataset})

    def withdraw(self, size: int) -> None:
        """Forget the lines after so many bytes, whose answers turned out to belong to other points."""
        with self.file.path.open("r+b") as file:
            file.truncate(size)
        self.file.size = size

    def reject(self, indices: Sequence[int], answers: object, reason: str) -> None:
        """Keep for people, in `answers.rejected.jsonl`, what was paid for and cannot be used."""
        with suppress(OSError):
            rejected = JsonLines(self.file.path.with_name("answers.rejected.jsonl"))
            with suppress(DamagedLineError):
                rejected.read()
            rejected.append({"indices": list(indices), "answers": f"{answers!r:.100000}", "reason": reason})


class StoredAnswers:
    """The answers in the lines of a file, the last one about each point."""

    def __init__(self, path: Path, dataset: str | None) -> None:
        self.path, self.dataset = path, dataset
        self.labels: dict[int, Any] = {}
        self.lines: dict[int, int] = {}
        self.conflicts: dict[int, int] = {}
        self.undated = False

    def add(self, number: int, line: dict[str, Any]) -> None:
        """A line of the file; older versions wrote indices and labels only."""
        try:
            indices, labels = self.parse(line)
        except ValueError as error:
            raise DamagedLineError(self.path, number, f"{error} {self.remedy()}") from error
        corrects = line.get("kind") == Correction.kind
        for index, label in zip(indices, labels, strict=True):
            if corrects:
                self.conflicts.pop(index, None)
            elif index in self.labels and self.labels[index] != label:
                self.conflicts[index] = number
            self.labels[index], self.lines[index] = label, number

    def parse(self, line: dict[str, Any]) -> tuple[list[int], list[Any]]:
        missing = sorted({"indices", "labels"} - line.keys())
        if missing:
            raise ValueError(f"a line of answers needs {', '.join(missing)}.")
        indices, labels, theirs = line["indices"], line["labels"], line.get("dataset")
        check_field("indices", indices)
        if not isinstance(labels, list):
            check_field("labels", labels)
        check_length("labels", labels, indices)
        if theirs is None:
            self.undated = True
        else:
            check_field("dataset", theirs)
            if self.dataset is None:
                self.dataset = theirs
            if theirs != self.dataset:
                raise ValueError(other_dataset("these answers were given", theirs, self.dataset))
        check_points(indices, {}, size_of(self.dataset) if self.dataset is not None else None)
        return indices, labels

    def check(self, index: int) -> None:
        """Refuse an answer that is not a label, and one that differs from an earlier one."""
        label, number = self.labels[index], self.lines[index]
        if not is_count(label):
            reason = f"labels must be integers from 0 that fit into 64 bits, that of point {index} is {label!r:.60}."
        elif index in self.conflicts:
            reason = f"point {index} has another label here, {label}, than in a line before."
        else:
            return
        raise DamagedLineError(self.path, number, f"{reason} {self.remedy(index)}")

    def remedy(self, index: int | None = None) -> str:
        folder = self.path.parent
        correct = f"`lightning-diffal correct {folder} {index} LABEL` sets it; " if index is not None else ""
        return f"{correct}`lightning-diffal repair {folder}` moves it out, so that it is asked again."
