"""Ranks wait for each other at the start with a limit, and say who is missing."""

import itertools
import socket
import time
from typing import Any, Final

import torch.distributed
from torch.distributed.distributed_c10d import _get_default_store

from lightning_diffal.plugin.distributed.signals import sigterm_ends_process

# Set-up may read data for minutes on one rank; torch itself would wait for half an hour and name nobody.
TIMEOUT_SECONDS: Final = 300.0
INTERVAL: Final = 0.02
GRACE_SECONDS: Final = 1.0

counts = itertools.count()
"""All ranks come here equally often, so that a number names the occasion."""


def wait_for_all_ranks(trainer: Any, occasion: str) -> None:
    """Wait until every rank is here, or fail after `TIMEOUT_SECONDS` with the ranks that are not.

    Through the store that the ranks were connected by, and not by a collective: a rank that waits in one names nobody,
    and hears no signal.
    """
    if trainer.world_size == 1 or not torch.distributed.is_initialized():
        return
    # There is no public way to the store; monitored_barrier is for gloo only, and other groups need all ranks already.
    store, number = _get_default_store(), next(counts)
    keys = [f"lightning-diffal/{number}/{rank}" for rank in range(trainer.world_size)]
    store.set(keys[trainer.global_rank], socket.gethostname())
    end, given_up = time.monotonic() + TIMEOUT_SECONDS, f"lightning-diffal/{number}/late"
    with sigterm_ends_process():
        while not store.check(keys):
            if time.monotonic() > end and not store.check([given_up]):
                late = [rank for rank, key in enumerate(keys) if not store.check([key])]
                store.set(given_up, ", ".join(f"rank {rank}" for rank in late))
            if store.check([given_up]):
                late_ranks = store.get(given_up).decode()
                if trainer.is_global_zero:
                    time.sleep(GRACE_SECONDS)  # the store ends with this process, and the others are to read it
                raise RuntimeError(
                    f"Rank {trainer.global_rank} on {socket.gethostname()} waited {TIMEOUT_SECONDS:g} seconds at "
                    f"{occasion}, and {late_ranks} of {trainer.world_size} did not come. Its own output says why. Work "
                    "that only one rank has to do, as downloading, belongs into prepare_data."
                )
            time.sleep(INTERVAL)
