"""Ranks started from outside, as torchrun and clusters start them: nobody ends the others when one of them dies.

Lightning takes seconds to import, so they are forked from the process that has imported it.
"""

import io
import multiprocessing
import os
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout

import torch

from tests.free_port import free_port

BOUND = 180  # seconds for a run of seconds on a very busy machine; torch's own limit is half an hour


def run_ranks(folder, function, world=2, nodes=1):
    """Call a function on every rank. What each ended with: None, or the traceback, or its signal as a number."""
    port = free_port()
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=one_rank, args=(folder, function, rank, world, nodes, port)) for rank in range(world)
    ]
    for process in ranks:
        process.start()
    end = time.monotonic() + BOUND
    for process in ranks:
        process.join(max(0.0, end - time.monotonic()))
    waiting = [rank for rank, process in enumerate(ranks) if process.is_alive()]
    for rank in waiting:
        ranks[rank].kill()
        ranks[rank].join()
    assert not waiting, f"ranks {waiting} did not end within {BOUND} seconds"
    return [outcome(folder, rank, process.exitcode) for rank, process in enumerate(ranks)]


def one_rank(folder, function, rank, world, nodes, port):
    local = world // nodes
    # The variables that torchrun sets.
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local),
        "GROUP_RANK": str(rank // local),
        "LOCAL_WORLD_SIZE": str(local),
    }
    torch.set_num_threads(1)
    error_of(folder, rank).unlink(missing_ok=True)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            function()
        except BaseException:
            error_of(folder, rank).write_text(traceback.format_exc())
            os._exit(1)
    os._exit(0)


def error_of(folder, rank):
    return folder / f"error-{rank}"


def outcome(folder, rank, code):
    return None if code == 0 else error_of(folder, rank).read_text() if code == 1 else -code
