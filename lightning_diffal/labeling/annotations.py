"""`annotations.jsonl`: every answer of people, on the disk before anyone hears that it was taken."""

import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from lightning_diffal.labeling.question import VERDICTS, Answer
from lightning_diffal.pool.folder.check import ANNOTATIONS as NAME
from lightning_diffal.pool.folder.json_lines import DamagedLineError, JsonLines
from lightning_diffal.pool.record import is_count, is_text

LOCK: Final = "annotations.lock"

# POSIX locks exclude other processes; threads of this one, as those of a web server, exclude each other by this.
appending: Final = threading.Lock()


class Annotations:
    """The answers of people about the points of one run, the last one about each point.

    Several processes may write at a time: a run that waits, the page in the browser, `lightning-diffal answers`. Each
    append holds a lock, and a torn last line, left by a process killed while writing, is removed by the next.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.latest: dict[int, Answer] = {}
        """The last answer about each point, in the order in which points were first answered; without those undone."""
        self.read()

    def read(self) -> None:
        """Read the file again. Lines that are damaged are skipped with a warning; the others count."""
        file = JsonLines(self.folder / NAME)
        self.latest.clear()
        for number, line in enumerate(file.scan(), start=1):
            try:
                if isinstance(line, DamagedLineError):
                    raise line
                answers = parse_line(line)
            except ValueError as error:
                reason = error.reason if isinstance(error, DamagedLineError) else str(error)
                warnings.warn(
                    f"{file.path}, line {number}: {reason} Its answers are not used: those points are still open.",
                    stacklevel=2,
                )
                continue
            for answer in answers:
                if answer.verdict == "undo":
                    self.latest.pop(answer.index, None)
                else:
                    self.latest[answer.index] = answer

    def append(self, answers: Sequence[Answer]) -> None:
        """Add answers, all in one line: all of them are on the disk when this returns, or none."""
        with locked(self.folder / LOCK):
            file = JsonLines(self.folder / NAME)
            file.size = file.complete_size() if file.path.exists() else 0
            file.append({"kind": "annotations", "answers": [to_json(answer) for answer in answers]})
        self.read()


def to_json(answer: Answer) -> dict[str, Any]:
    return {name: value for name, value in asdict(answer).items() if name != "line"}


def parse_line(line: dict[str, Any]) -> list[Answer]:
    """The answers of a line, each checked."""
    given = line.get("answers")
    if not isinstance(given, list):
        raise ValueError("a line of annotations needs answers.")
    answers = []
    for content in given:
        if not isinstance(content, dict) or not is_count(content.get("index")):
            raise ValueError(f"an answer needs an index from 0, it is {content!r:.80}.")
        verdict, label = content.get("verdict"), content.get("label")
        if verdict not in VERDICTS or (verdict == "label") != is_text(label):
            raise ValueError(f"an answer needs a label or another verdict, it is {content!r:.80}.")
        if not (is_text(content.get("who")) and is_text(content.get("when"))):
            raise ValueError(f"an answer needs who gave it and when, it is {content!r:.80}.")
        answers.append(
            Answer(index=content["index"], label=label, verdict=verdict, who=content["who"], when=content["when"])
        )
    return answers


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock and hold it. The kernel releases it when the process ends, however it ends."""
    with appending:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            wait_for_lock(file)
            yield
        finally:
            os.close(file)


def wait_for_lock(file: int) -> None:
    if os.name == "posix":
        import fcntl  # noqa: PLC0415, not there on Windows

        fcntl.lockf(file, fcntl.LOCK_EX)
    else:
        import msvcrt  # noqa: PLC0415, there on Windows only

        msvcrt.locking(file, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
