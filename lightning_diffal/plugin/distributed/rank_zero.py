"""Work done on rank 0, with its result on every rank."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import torch.distributed

from lightning_diffal.plugin.distributed.signals import sigterm_ends_process, sigterm_raises
from lightning_diffal.plugin.distributed.strategies import is_a

Result = TypeVar("Result")

# Seconds between two broadcasts that rank 0 is still working.
INTERVAL: Final = 2.0


def from_rank_zero(trainer: Any, work: Callable[[], Result]) -> Result:
    """Do some work on rank 0 and give its result to all, however long it takes. If it fails, it fails on all.

    A person may need days to answer, and a rank that waits in one collective for half an hour is ended by torch: so
    rank 0 broadcasts every `INTERVAL` seconds that it is still working, from a second thread. If a rank dies meanwhile,
    the work is finished first: what was answered is on the disk before the error.
    """
    if trainer.world_size == 1 or trainer.is_global_zero:
        with sigterm_raises():
            return work() if trainer.world_size == 1 else run_and_broadcast(trainer, work)
    with sigterm_ends_process():
        while True:
            state, content = trainer.strategy.broadcast(None)
            if state == "failed":
                raise RuntimeError(f"Rank 0 failed: {content}")
            if state == "done":
                return cast(Result, content)


def from_connected_rank_zero(trainer: Any, work: Callable[[], Result]) -> Result:
    """The same before a fit, where the ranks may not be connected yet: then each does the work itself.

    Ranks that Lightning starts come here before they are connected, and rank 0 waits for them before it goes on.
    """
    return from_rank_zero(trainer, work) if is_connected() else work()


def connect(trainer: Any) -> None:
    """Connect ranks that torchrun or a cluster has started before a fit, as the fit would, so that rank 0 can speak.

    Not those that Lightning starts itself: rank 0 is in the fit by then. Of strategies, those of the DDP family.
    """
    strategy, environment = trainer.strategy, getattr(trainer.strategy, "cluster_environment", None)
    if trainer.world_size == 1 or is_connected() or environment is None or not is_a(strategy, "DDPStrategy"):
        return
    if environment.creates_processes_externally and not is_a(environment, "LightningEnvironment"):
        strategy.setup_environment()


def is_connected() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def run_and_broadcast(trainer: Any, work: Callable[[], Result]) -> Result:
    """The side of rank 0."""
    keep_alive = KeepAlive(trainer)
    try:
        result = work()
    except BaseException as error:
        with suppress(RuntimeError):  # the others may be gone, and this is what matters
            keep_alive.stop()
            trainer.strategy.broadcast(("failed", f"{type(error).__name__}: {error}"))
        raise
    keep_alive.stop()
    trainer.strategy.broadcast(("done", result))
    return result


class KeepAlive:
    """A thread that broadcasts "busy" to the waiting ranks until it is stopped."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.stopped = trainer, threading.Event()
        self.error: RuntimeError | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        if self.trainer.strategy.root_device.type == "cuda":
            torch.cuda.set_device(self.trainer.strategy.root_device)  # a thread's own, and NCCL sends from it
        while not self.stopped.wait(INTERVAL):
            try:
                self.trainer.strategy.broadcast(("busy", None))
            except RuntimeError as error:
                self.error = error
                return

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()
        if self.error is not None:
            raise self.error
