"""A file of JSON lines. A line is on the disk when `append` returns, also if the process is killed right after."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

from lightning_diffal.pool.files import flush_folder


class JsonLines:
    """The lines of a file that one process appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        """Bytes up to the end of the last complete line."""

    def read(self) -> list[dict[str, Any]]:
        """All complete lines. A torn last one, left by a process killed while writing, is skipped with a warning."""
        data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            warnings.warn(
                f"{self.path}: the last line is torn, {len(lines[-1])} bytes without a line end: a process was "
                "stopped while writing it. Nothing was based on that line yet; it is skipped.",
                stacklevel=2,
            )
            lines.pop()
        self.size = sum(map(len, lines))
        return [self.parse(number, line) for number, line in enumerate(lines, start=1)]

    def parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{self.path}, line {number}: this is not JSON ({error}).") from error
        if not isinstance(content, dict):
            raise ValueError(f"{self.path}, line {number}: a JSON object is needed.")
        return content

    def append(self, content: dict[str, Any]) -> None:
        """Add a line and wait until it is on the disk. A torn last line is removed first."""
        line = json.dumps(content, allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            end = file.seek(0, os.SEEK_END)
            if end != self.size and self.complete_size() != self.size:
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

    def complete_size(self) -> int:
        """Bytes of the file up to its last line end."""
        return self.path.read_bytes().rfind(b"\n") + 1
