"""Whether all ranks see the run's folder."""

import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch.distributed
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal.plugin.distributed.rank_zero import from_connected_rank_zero, is_connected
from lightning_diffal.pool.folder.folder_lock import FolderLock

# How long a file written by rank 0 may take to be visible elsewhere. Network disks show a new name at once to a client
# that has never looked for it, and within seconds otherwise.
TIMEOUT_SECONDS: Final = 10.0


def check_shared_folder(trainer: Any, folder: Path | None) -> None:
    """Refuse to start, on every rank, if one of them does not see a file that rank 0 has just written there.

    Rank 0 alone reads the ledger, but Lightning reads the checkpoint a round starts from on each rank. Costs
    milliseconds.
    """
    if folder is None or trainer.world_size == 1 or not torch.distributed.is_initialized():
        return
    name, problem = trainer.strategy.broadcast(write_probe(folder) if trainer.is_global_zero else None)
    seen = problem is None and wait_for(folder / name)
    reports: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(reports, (seen, socket.gethostname(), str(folder)))
    not_seen_by = [rank for rank, (saw, _, _) in enumerate(reports) if not saw]
    # An empty folder is removed again. The other ranks leave it alone: rank 0 is about to write to it.
    with suppress(OSError):
        if trainer.is_global_zero:
            (folder / name).unlink()
        if not_seen_by or trainer.is_global_zero:
            folder.rmdir()
    _, host, ours = reports[0]
    if problem is not None:
        raise MisconfigurationException(f"folder={ours!r}: rank 0 on {host} cannot write to it: {problem}")
    if not_seen_by:
        where = "; ".join(f"rank {rank} on {reports[rank][1]} in {reports[rank][2]!r}" for rank in not_seen_by[:8])
        raise MisconfigurationException(
            f"The folder of the run is {ours!r} on {host}, and what rank 0 writes there is not seen by "
            f"{len(not_seen_by)} of {trainer.world_size} ranks: {where}. All ranks read the checkpoints in it and "
            "need one folder: folder=..., or the Trainer's default_root_dir, on a disk that all nodes share."
        )


def acquire(trainer: Any, lock: FolderLock) -> None:
    """Own the folder of the run, on rank 0 for all; if it cannot, no rank goes on."""

    def own() -> None:
        try:
            lock.acquire()
        except OSError as error:
            folder = str(lock.folder)
            raise MisconfigurationException(
                f"folder={folder!r}: rank 0 on {socket.gethostname()} cannot write to it: {error}"
            ) from error

    if is_connected() or trainer.is_global_zero:
        from_connected_rank_zero(trainer, own)


def write_probe(folder: Path) -> tuple[str, str | None]:
    """The name of a new file in the folder, and why it could not be written, if so."""
    name = f".seen-by-all-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    except OSError as error:
        return name, str(error)
    return name, None


def wait_for(path: Path) -> bool:
    """Whether a file is there, or appears within `TIMEOUT_SECONDS`."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        # Created here too: a network disk may cache for a while that the folder was not there before rank 0 made it.
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
