"""Files that are on the disk, whole, or not there at all."""

import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that readers and crashes find the old content or the new one, never half of it.

    Of several processes that write one file, the last to finish wins. One that is killed leaves its `.tmp` behind.

    Args:
        write: Writes the content to the path it is given: a temporary one in the same folder, removed if this fails.
    """
    temporary = temporary_path(path, os.getpid())
    try:
        write(temporary)
        replace_durably(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_path(path: Path, process_id: int) -> Path:
    """Where a process writes a file before it gets its name."""
    return path.with_name(f"{path.name}.{process_id}.tmp")


def replace_durably(temporary: Path, path: Path) -> None:
    """Give a finished file, or a folder of files, its name; it is on the disk under that name afterwards."""
    for part in [temporary, *temporary.rglob("*")] if temporary.is_dir() else [temporary]:
        flush_folder(part) if part.is_dir() else flush_file(part)
    os.replace(temporary, path)  # noqa: PTH105, atomic, which Path.replace does not promise in its name
    flush_folder(path.parent)


def flush_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Write a folder's list of names to the disk: a new file is safe only after that."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, each named on the disk by the one above."""
    new = [folder]
    while not new[-1].exists() and new[-1] != new[-1].parent:
        new.append(new[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    for parent in new[1:]:
        flush_folder(parent)


def reserve(path: Path, size: int) -> None:
    """Refuse to go on if a file of so many bytes cannot be written here: no rights, a full disk, a limit.

    The space is taken, flushed and given back, since disks that compress or share may grant what they do not have.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
    finally:
        temporary.unlink(missing_ok=True)
