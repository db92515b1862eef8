"""A file of JSON lines. A line is on the disk when `append` returns, also if the process is killed right after."""

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_diffal.pool.folder.files import flush_folder, make_folder, write_atomically
from lightning_diffal.pool.folder.line_format import parse_object, seal, unseal


class DamagedLineError(ValueError):
    """A line of a file that cannot be used: where it is and why."""

    def __init__(self, path: Path, number: int, reason: object) -> None:
        super().__init__(f"{path}, line {number}: {reason}")
        self.path, self.number, self.reason = path, number, str(reason)


class JsonLines:
    """The lines of a file that one process appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        """Bytes up to the end of the last complete line."""

    def read(self) -> list[dict[str, Any]]:
        """All complete lines. A torn last one, left by a process killed while writing, is skipped with a warning."""
        contents = []
        for content in self.scan():
            if isinstance(content, DamagedLineError):
                raise content
            contents.append(content)
        torn = (self.path.stat().st_size if self.path.exists() else 0) - self.size
        if torn:
            warnings.warn(
                f"{self.path}: the last line is torn, {torn} bytes without a line end: a process was stopped while "
                "writing it. Nothing was based on that line yet; it is skipped.",
                stacklevel=2,
            )
        return contents

    def scan(self) -> Iterator[dict[str, Any] | DamagedLineError]:
        """Each complete line, or what is wrong with it."""
        data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.split(b"\n")[:-1]
        self.size = sum(map(len, lines)) + len(lines)
        for number, line in enumerate(lines, start=1):
            try:
                yield unseal(parse_object(line))
            except ValueError as error:
                yield DamagedLineError(self.path, number, error)

    def append(self, content: dict[str, Any]) -> None:
        """Add a line and wait until it is on the disk. A torn last line is removed first."""
        line = json.dumps(seal(content), allow_nan=False).encode() + b"\n"
        make_folder(self.path.parent)
        is_new = not self.path.exists()
        with self.path.open("ab") as file:
            end = file.seek(0, os.SEEK_END)
            if end != self.size:
                self.check_unchanged()
            file.truncate(self.size)
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                self.remove_torn_line(file.fileno())
                raise
        if is_new:
            flush_folder(self.path.parent)
        self.size += len(line)

    def replace_last(self, content: dict[str, Any]) -> None:
        """Put another line in the place of the last one. A crash leaves the old one or the new one."""
        self.check_unchanged()
        before = self.path.read_bytes()[: self.size]
        kept = before[: before.rfind(b"\n", 0, -1) + 1]
        line = json.dumps(seal(content), allow_nan=False).encode() + b"\n"
        write_atomically(self.path, lambda temporary: temporary.write_bytes(kept + line))
        self.size = len(kept) + len(line)

    def remove_torn_line(self, file: int) -> None:
        """What a full disk has taken of a line. If this fails, too, it is skipped when the file is read."""
        try:
            os.truncate(file, self.size)
        except OSError:
            warnings.warn(f"{self.path}: the disk is full, and the last line is torn.", stacklevel=3)

    def check_unchanged(self) -> None:
        """Refuse to write after a line that somebody else has written."""
        if self.complete_size() != self.size:
            raise RuntimeError(
                f"{self.path} has changed since it was read: another process writes to it. "
                "One run needs a folder of its own: folder=..."
            )

    def complete_size(self) -> int:
        """Bytes of the file up to its last line end."""
        return self.path.read_bytes().rfind(b"\n") + 1
