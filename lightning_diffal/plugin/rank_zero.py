"""What one rank does for all."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import torch

Result = TypeVar("Result")

# Seconds after which the others hear that rank 0 is still at work.
BEAT: Final = 2.0


def from_rank_zero(trainer: Any, work: Callable[[], Result]) -> Result:
    """Do some work on rank 0 and give its result to all, however long it takes. If it fails, it fails on all.

    A person may need days to answer, and a rank that waits in one collective for half an hour is ended by torch: so
    rank 0 says every `BEAT` seconds that it is still at work, from a second thread. If a rank dies meanwhile, the work
    is finished first: what was answered is on the disk before the error.
    """
    if trainer.world_size == 1:
        return work()
    if trainer.is_global_zero:
        return told(trainer, work)
    while True:
        state, content = trainer.strategy.broadcast(None)
        if state == "failed":
            raise RuntimeError(f"Rank 0 could not go on: {content}")
        if state == "done":
            return cast(Result, content)


def told(trainer: Any, work: Callable[[], Result]) -> Result:
    """The part of rank 0."""
    pulse = Heartbeat(trainer)
    try:
        result = work()
    except BaseException as error:
        with suppress(RuntimeError):  # the others may be gone, and this is what matters
            pulse.stop()
            trainer.strategy.broadcast(("failed", f"{type(error).__name__}: {error}"))
        raise
    pulse.stop()
    trainer.strategy.broadcast(("done", result))
    return result


class Heartbeat:
    """Tells the other ranks that this one is still at work, until it is stopped."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.over = trainer, threading.Event()
        self.problem: RuntimeError | None = None
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()

    def beat(self) -> None:
        if self.trainer.strategy.root_device.type == "cuda":
            torch.cuda.set_device(self.trainer.strategy.root_device)  # a thread's own, and NCCL sends from it
        while not self.over.wait(BEAT):
            try:
                self.trainer.strategy.broadcast(("busy", None))
            except RuntimeError as error:
                self.problem = error
                return

    def stop(self) -> None:
        self.over.set()
        self.thread.join()
        if self.problem is not None:
            raise self.problem
