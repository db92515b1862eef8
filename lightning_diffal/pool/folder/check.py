"""Whether the folder of a run is intact. Reads only, needs no lock, no dataset and no model."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lightning_diffal.pool.folder.answer_file import NAME as ANSWERS
from lightning_diffal.pool.folder.answer_file import StoredAnswers
from lightning_diffal.pool.folder.json_lines import DamagedLineError, JsonLines
from lightning_diffal.pool.ledger_entries import EntryCheck, RunIdentity, first_labels_of, labels_of, merge_entries
from lightning_diffal.pool.record import Entry, Record, entry_from_json, is_count

LEDGER = "rounds.jsonl"
# The answers of people: see `lightning_diffal.labeling`.
ANNOTATIONS = "annotations.jsonl"


@dataclass(frozen=True)
class Problem:
    """What is wrong, and where."""

    path: Path
    line: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.path}{f', line {self.line}' if self.line is not None else ''}: {self.reason}"


@dataclass
class RunFiles:
    """What can be read of a run's ledger and answers, and what is wrong with the rest."""

    folder: Path
    entries: list[Entry] = field(default_factory=list)
    """The lines of the ledger before the first damaged one."""
    answers: StoredAnswers | None = None
    """What the intact lines of the answers hold; None if there is no such file."""
    ledger_problems: list[Problem] = field(default_factory=list)
    answer_problems: list[Problem] = field(default_factory=list)
    annotation_problems: list[Problem] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """The rounds, with corrected labels."""
        return merge_entries(self.entries)

    @property
    def labels(self) -> dict[int, int]:
        """All labels of the ledger, as they were corrected."""
        return dict(pair for record in self.records for pair in zip(*labels_of(record), strict=True))

    @property
    def first_labels(self) -> dict[int, int]:
        """All labels of the ledger as they were answered."""
        return first_labels_of(self.entries)


def check_run(folder: Path) -> list[Problem]:
    """All problems of a run's folder, those of the ledger first. An intact run has none."""
    if not folder.is_dir() or not any((folder / name).exists() for name in (LEDGER, ANSWERS)):
        return [Problem(folder, None, f"this is not the folder of a run: it has neither {LEDGER} nor {ANSWERS}.")]
    files = read_run(folder)
    return [*files.ledger_problems, *files.answer_problems, *files.annotation_problems, *check_checkpoints(folder)]


def read_run(folder: Path) -> RunFiles:
    """The ledger and the answers, as far as they can be read."""
    files = RunFiles(folder)
    read_ledger(files)
    if (folder / ANSWERS).exists():
        read_answer_lines(files)
    files.annotation_problems.extend(damaged_lines(JsonLines(folder / ANNOTATIONS)))
    return files


def damaged_lines(file: JsonLines) -> Iterator[Problem]:
    for number, line in enumerate(file.scan(), start=1):
        if isinstance(line, DamagedLineError):
            yield Problem(file.path, number, line.reason)
    yield from torn_line(file)


def read_ledger(files: RunFiles) -> None:
    file = JsonLines(files.folder / LEDGER)
    check: EntryCheck | None = None
    for number, line in enumerate(file.scan(), start=1):
        try:
            if isinstance(line, DamagedLineError):
                raise ValueError(line.reason)
            entry = entry_from_json(line)
            if entry is None:
                continue
            if check is None:
                if not isinstance(entry, Record):
                    raise ValueError(f"a line of kind {entry.kind!r} without a round before it.")
                check = EntryCheck(RunIdentity.of(entry))
            check(entry)
        except ValueError as error:
            files.ledger_problems.append(Problem(file.path, number, str(error)))
        else:
            if not files.ledger_problems:
                files.entries.append(entry)
    files.ledger_problems.extend(torn_line(file))


def read_answer_lines(files: RunFiles) -> None:
    file = JsonLines(files.folder / ANSWERS)
    dataset = files.records[0].dataset if files.records else None
    files.answers = answers = StoredAnswers(file.path, dataset)
    for number, line in enumerate(file.scan(), start=1):
        try:
            if isinstance(line, DamagedLineError):
                raise line
            answers.add(number, line)
        except DamagedLineError as error:
            files.answer_problems.append(Problem(file.path, number, error.reason))
    for index, label in answers.labels.items():
        given = files.first_labels.get(index)
        try:
            if given is None or not is_count(label):
                answers.check(index)
            elif label != given:
                raise DamagedLineError(
                    file.path,
                    answers.lines[index],
                    f"point {index} has label {label!r:.60} here and {given} in {LEDGER}.",
                )
        except DamagedLineError as error:
            files.answer_problems.append(Problem(file.path, error.number, error.reason))
    files.answer_problems.sort(key=lambda problem: problem.line or 0)
    files.answer_problems.extend(torn_line(file))


def torn_line(file: JsonLines) -> Iterator[Problem]:
    """A last line without an end. A run that goes on removes it."""
    torn = (file.path.stat().st_size if file.path.exists() else 0) - file.size
    if torn:
        yield Problem(file.path, None, f"the last line is torn, {torn} bytes without a line end.")


def check_checkpoints(folder: Path) -> Iterator[Problem]:
    """Checkpoints that are empty, cut off or changed. Nothing in them is run."""
    for path in sorted(folder.glob("*.ckpt")):
        if path.is_file():
            reason = archive_problem(path)
            if reason is not None:
                yield Problem(path, None, f"this checkpoint {reason}.")


def archive_problem(path: Path) -> str | None:
    """Why a file that torch wrote cannot be read, by the checksums in it; None if it can."""
    if path.stat().st_size == 0:
        return "is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, ValueError) as error:
        return f"is damaged ({error})"
    return f"is damaged ({broken} has another checksum)" if broken is not None else None
