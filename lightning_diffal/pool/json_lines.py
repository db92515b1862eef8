"""A file of JSON lines that survives being killed: a line is on the disk when `append` returns, or it is not there."""

import json
import os
import warnings
from pathlib import Path
from typing import Any


class JsonLines:
    """The lines of a file, and the only one who may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        """Bytes up to the end of the last whole line."""

    def read(self) -> list[dict[str, Any]]:
        """All whole lines. A torn last one, left by a process that was killed while writing, is reported and passed."""
        data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            warnings.warn(
                f"{self.path}: the last line is torn, {len(lines[-1])} bytes without an end: a process was stopped "
                "while it wrote. Nothing was done upon that line yet; it is passed over.",
                stacklevel=2,
            )
            lines.pop()
        self.size = sum(map(len, lines))
        return [self.parsed(number, line) for number, line in enumerate(lines, start=1)]

    def parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{self.path}, line {number}: this is no JSON ({error}).") from error
        if not isinstance(content, dict):
            raise ValueError(f"{self.path}, line {number}: a JSON object is needed.")
        return content

    def append(self, content: dict[str, Any]) -> None:
        """Add a line and wait until it is on the disk. A torn line before it goes."""
        line = json.dumps(content, allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            there = file.seek(0, os.SEEK_END)
            if there != self.size and self.whole_lines() != self.size:
                raise RuntimeError(
                    f"{self.path} has changed since it was read: another process writes to it. "
                    "One run needs a folder of its own: folder=..."
                )
            file.truncate(self.size)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        flush_folder(self.path.parent)
        self.size += len(line)

    def whole_lines(self) -> int:
        """Bytes of the file up to its last line end."""
        return self.path.read_bytes().rfind(b"\n") + 1


def flush_folder(folder: Path) -> None:
    """A new file is safe only when the folder that names it is on the disk too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
