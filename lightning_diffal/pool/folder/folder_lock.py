"""One owner of a run folder: a lock that the kernel releases when its process ends."""

import errno
import json
import os
import socket
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from lightning_diffal.pool.folder.files import make_folder

NAME: Final = ".lock"

# `is_locked` of another process holds a free lock for a moment.
ATTEMPTS: Final = 5

# What a disk answers that has no locks.
UNSUPPORTED: Final = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class FolderInUseError(RuntimeError):
    """Another process, or another callback of this one, owns the run folder."""


@dataclass(frozen=True)
class Owner:
    """Who wrote a lock file: who owns the folder, or who owned it last and was killed."""

    pid: int
    host: str
    since: str

    @staticmethod
    def read(folder: Path) -> "Owner | None":
        ours = held_here(folder)
        if ours is not None:
            return ours.owner
        try:
            content = json.loads((folder / NAME).read_bytes())
            return Owner(int(content["pid"]), str(content["host"]), str(content["since"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None  # not there, or its owner is just writing it

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class FolderLock:
    """The lock of a run folder, held by one process at a time.

    A POSIX record lock (`fcntl.lockf`): unlike `flock` it is not inherited by forked processes, so that workers which
    outlive a killed run do not keep its folder. It works across nodes on NFSv4, and on NFSv3 with lockd; a mount with
    `nolock` or `local_lock` keeps it to one node. The file's content only tells people who holds it.

    Processes that the owner starts as ranks, forked or spawned with a copy of this object, may use the folder too.
    """

    held: ClassVar["WeakValueDictionary[str, FolderLock]"] = WeakValueDictionary()
    """The locks of this process: POSIX locks do not exclude a second holder in the same process."""
    changing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner: Owner | None = None
        self.file = -1

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "file": -1}

    def acquire(self) -> None:
        """Own the folder, which is created if need be, until `release` or the end of the process.

        Raises:
            FolderInUseError: Another process owns it.
            OSError: It cannot be written to.
        """
        with FolderLock.changing:
            if self.owner is not None:  # held by this object, or by the process that started this one
                return
            if held_here(self.folder) is not None:
                raise FolderInUseError(refusal(self.folder, "another callback of this process"))
            self.file = locked_file(self.folder)
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            self.owner = Owner(os.getpid(), socket.gethostname(), now)
            FolderLock.held[os.path.realpath(self.folder)] = self
            os.truncate(self.file, 0)
            os.write(self.file, json.dumps(asdict(self.owner)).encode())

    def release(self) -> None:
        """The folder is free again; one that is empty goes."""
        with FolderLock.changing:
            if not self.is_own():
                return
            FolderLock.held.pop(os.path.realpath(self.folder), None)
            with suppress(OSError):
                (self.folder / NAME).unlink()  # while it is locked: see `locked_file`
                self.folder.rmdir()
            os.close(self.file)
            self.file, self.owner = -1, None

    def is_own(self) -> bool:
        """Whether this very process holds it."""
        return self.file >= 0 and self.owner is not None and self.owner.pid == os.getpid()

    def __del__(self) -> None:
        if self.is_own():
            self.release()


def held_here(folder: Path) -> FolderLock | None:
    """The lock of this process on a folder. Its file must not be opened again: closing it would free the folder."""
    lock = FolderLock.held.get(os.path.realpath(folder))
    return lock if lock is not None and lock.is_own() else None


def locked_file(folder: Path) -> int:
    """An open, locked lock file."""
    attempts = 0
    while True:
        make_folder(folder)
        try:
            file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the owner before us has just removed the folder, which was empty
            continue
        try:
            lock(file)
        except OSError as error:
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                attempts += 1
                if attempts < ATTEMPTS:
                    time.sleep(0.02)
                    continue
                raise FolderInUseError(refusal(folder, "another process")) from None
            if error.errno not in UNSUPPORTED:
                raise
            warnings.warn(
                f"{folder}: this disk has no locks ({error}). If the run is started twice, both processes will ask "
                "for labels. Another folder=..., or a mount with locks, is safer.",
                stacklevel=4,
            )
            return os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
        # An owner removes the file when it ends. Who opened it before and locked it then has a file without a name,
        # and the next one would create another.
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), (folder / NAME).stat()):
                return file
        os.close(file)


def lock(file: int) -> None:
    """Lock a file at once, or raise EACCES or EAGAIN."""
    if os.name == "posix":
        import fcntl  # noqa: PLC0415, not there on Windows

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt  # noqa: PLC0415, there on Windows only

        os.lseek(file, 2**20, os.SEEK_SET)  # the content stays readable, Windows' locks are mandatory
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        os.lseek(file, 0, os.SEEK_SET)


def is_locked(folder: Path) -> bool:
    """Whether a live process owns the folder. Writes nothing, and holds the lock for a moment if it is free."""
    if held_here(folder) is not None:
        return True
    try:
        file = os.open(folder / NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        lock(file)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    finally:
        os.close(file)
    return False


def refusal(folder: Path, who: str) -> str:
    owner = Owner.read(folder)
    return (
        f"folder={str(folder)!r} is in use by {who}{f': {owner}' if owner else ''}. Nothing was asked or written. One "
        "run needs a folder of its own: wait until that one has ended, or give this one another folder=..."
    )
