"""What is safe to do about a damaged run, with a copy of what was there; and one label corrected, with a trace."""

import getpass
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.pool.folder.answer_file import NAME as ANSWERS
from lightning_diffal.pool.folder.answer_file import AnswerFile
from lightning_diffal.pool.folder.check import ANNOTATIONS, LEDGER, RunFiles, archive_problem, read_run
from lightning_diffal.pool.folder.files import make_folder, write_atomically
from lightning_diffal.pool.folder.folder_lock import FolderLock
from lightning_diffal.pool.folder.line_format import parse_object
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.record import MAX_LABEL, Correction, is_count, is_int


def repair_run(folder: Path) -> list[str]:
    """Do what loses no label, and say what was done. Every file is copied to `before-repair-...` before it is changed.

    Torn last lines are cut off. Damaged lines of answers are taken out: their points are asked about again. A damaged
    line of the ledger is cut off with those after it if no label that was paid for goes with them: in a simulation, or
    if the answers file has them all. Damaged checkpoints that a run can do without are moved out.
    """
    with owned(folder):
        files = read_run(folder)
        return list(repairs(files, Backup(folder)))


class Backup:
    """The files as they were."""

    def __init__(self, folder: Path) -> None:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
        self.folder = folder / f"before-repair-{stamp}"

    def keep(self, path: Path) -> None:
        make_folder(self.folder)
        shutil.copy2(path, self.folder / path.name)


def repairs(files: RunFiles, backup: Backup) -> Iterator[str]:
    if files.ledger_problems:
        yield from cut_ledger(files, backup)
    for name, problems in ((ANSWERS, files.answer_problems), (ANNOTATIONS, files.annotation_problems)):
        if problems:
            yield take_out(files.folder / name, {problem.line for problem in problems}, backup)
    for path in sorted(files.folder.glob("*.ckpt")):
        reason = archive_problem(path) if path.is_file() else None
        if reason is not None:
            backup.keep(path)
            path.unlink()
            yield f"{path} {reason} and was moved to {backup.folder}."


def take_out(path: Path, damaged: set[int | None], backup: Backup) -> str:
    """Keep the intact lines of a file of answers."""
    backup.keep(path)
    lines = path.read_bytes().split(b"\n")[:-1]
    kept = [line for number, line in enumerate(lines, start=1) if number not in damaged]
    write_atomically(path, lambda temporary: temporary.write_bytes(b"".join(line + b"\n" for line in kept)))
    return f"{path}: {len(lines) - len(kept)} damaged lines were taken out; a copy is in {backup.folder}."


def cut_ledger(files: RunFiles, backup: Backup) -> Iterator[str]:
    """Keep the intact lines at the beginning, if the labels of the others are not lost by that."""
    path = files.folder / LEDGER
    lines = path.read_bytes().split(b"\n")[:-1]
    first = min((problem.line for problem in files.ledger_problems if problem.line is not None), default=None)
    damaged = lines[first - 1 :] if first is not None else []
    if damaged and not has_all_labels(files, damaged):
        return  # `check_run` still lists it
    backup.keep(path)
    intact = b"".join(line + b"\n" for line in lines[: len(lines) - len(damaged)])
    write_atomically(path, lambda temporary: temporary.write_bytes(intact))
    rounds = f"the last {len(damaged)} lines were cut off; their rounds are run again"
    what = rounds if damaged else "a torn last line was cut off"
    yield f"{path}: {what}. A copy is in {backup.folder}."


def has_all_labels(files: RunFiles, damaged: list[bytes]) -> bool:
    """Whether the answers have the labels of damaged lines of the ledger. In a simulation the dataset has them."""
    if (files.folder / ANNOTATIONS).exists():  # people's answers stay there, and are found when points are asked again
        return not files.annotation_problems
    if files.answers is None:
        return True
    counts = [0]
    for line in damaged:
        with suppress(ValueError, TypeError, KeyError):
            content = parse_object(line)
            counts.append(content["labeled"] + len(content.get("labels", [])))
    known = set(files.answers.labels)
    return not files.answer_problems and known >= set(files.first_labels) and len(known) >= max(counts)


@skip_type_check
def correct_labels(folder: Path, labels: Mapping[int, int]) -> list[str]:
    """Change labels that were given, with a line that keeps the old ones: in the ledger, or among the answers.

    The next round trains on them. Says what was changed.
    """
    with owned(folder):
        files = read_run(folder)
        return list(corrections(files, labels))


@skip_type_check
def corrections(files: RunFiles, labels: Mapping[int, int]) -> Iterator[str]:
    if not labels:
        raise ValueError("no label was given.")
    if files.ledger_problems:
        raise ValueError(f"{files.ledger_problems[0]} Run `lightning-diffal repair {files.folder}` first.")
    stored = files.answers.labels if files.answers is not None else {}
    for index, label in labels.items():
        if not is_int(index) or (index not in files.labels and index not in stored):
            raise ValueError(f"point {index!r} has no label in {files.folder} that could be corrected.")
        if not is_count(label):
            raise ValueError(f"label {label!r:.60} of point {index}: an integer from 0 to {MAX_LABEL} is needed.")
    in_ledger = {index: label for index, label in labels.items() if index in files.labels}
    waiting = {index: label for index, label in labels.items() if index not in files.labels}
    if in_ledger:
        ledger = Ledger(files.folder)
        assert ledger.file is not None
        ledger.file.read()
        ledger.entries = list(files.entries)
        ledger.correct(correction_of(in_ledger, files.labels))
    if waiting and files.answers is not None:
        answers = AnswerFile(files.folder, files.answers.dataset)
        answers.file.read()
        answers.correct(correction_of(waiting, stored))
    for index, label in labels.items():
        was = files.labels.get(index, stored.get(index))
        yield f"point {index}: {was!r:.60} is now {label}."


def correction_of(labels: Mapping[int, int], before: Mapping[int, object]) -> Correction:
    return Correction(
        indices=list(labels),
        labels=list(labels.values()),
        was=[was if is_count(was := before[index]) else None for index in labels],  # type: ignore[misc]
        when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        by=f"{user_name()} on {socket.gethostname()}",
    )


def user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        return "unknown"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """The lock of a folder that exists."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    lock = FolderLock(folder)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
