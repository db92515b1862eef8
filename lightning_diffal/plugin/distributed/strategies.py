"""What strategies that shard or wrap a model allow, and what not.

Read in the source of Lightning 2.6.6 and torch 2.15; FSDP1 was also run, its wrapper on the CPU over gloo.

FSDP1: `strategy.model` is a wrapper around the module, still there in `on_fit_end`. Outside of a call of the wrapper
the parameters of the module are this rank's shards, flat: the module itself cannot be called. A second fit wraps the
shards once more and fails in its first step ("mat2 must be a matrix"), with a new Trainer, too. And a checkpoint of
optimizers that have made no step cannot be loaded (`load_checkpoint` looks at their first entry).

DeepSpeed: with ZeRO stage 1 and 2 the parameters are whole on every rank, and `strategy.teardown` leaves an ordinary
module. With stage 3 they are partitioned and empty by then, and the engine that could gather them is driven through
its own `forward` only. Its checkpoints are folders. It needs CUDA and has not been run.
"""

from collections.abc import Callable
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException


def check_rounds(strategy: Any) -> None:
    """Refuse strategies under which one model can be fitted only once."""
    if is_a(strategy, "FSDPStrategy"):
        raise MisconfigurationException(
            f"active.fit(trainer=...): {type(strategy).__name__} (FSDP1) cannot fit a model twice: it leaves it in "
            "shards. ModelParallelStrategy (FSDP2) can; or do one round at a time, trainer.fit with a new model each."
        )


def check_one_trainer(strategy: Any) -> None:
    """Refuse strategies under which one Trainer fits only once, now and not after the first round."""
    if is_a(strategy.launcher, "_MultiProcessingLauncher"):  # no public attribute says how processes are started
        raise MisconfigurationException(
            f"active.fit(trainer=...): {type(strategy).__name__} starts new processes for one fit, and Lightning "
            "allows a Trainer one such fit (ddp_spawn, ddp_fork, ddp_notebook). Pass a function that makes a Trainer "
            "for each round: active.fit(make_trainer, ...)."
        )


def check_forward(strategy: Any, needs: frozenset[str]) -> None:
    """Refuse strategies under which a model cannot be asked about the pool after a fit."""
    if needs and is_a(strategy, "DeepSpeedStrategy") and strategy.zero_stage_3:
        raise MisconfigurationException(
            f"{type(strategy).__name__}(stage=3): the weights are partitioned after a fit, and the selector needs the "
            f"model's {' and '.join(sorted(needs))} then. Stages 1 and 2 keep them whole; RandomSelector needs nothing."
        )


def loads_optimizers(strategy: Any) -> bool:
    """Whether a strategy loads optimizers from its checkpoints on its own, whatever we leave out of them."""
    return is_a(strategy, "ModelParallelStrategy") or is_a(strategy, "DeepSpeedStrategy")


def through_wrapper(strategy: Any, module: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the module, made to do so from inside the wrapper that puts its weights together.

    The wrapper calls the `forward` of the module, so this stands in for it once, as in Lightning's own steps.
    """
    wrapper = strategy.model
    if not is_a(strategy, "FSDPStrategy") or wrapper is module:
        return run

    def wrapped(*arguments: Any) -> Any:
        def inside() -> Any:
            restore()
            return run(*arguments)

        def restore() -> None:
            vars(module).pop("forward", None)
            if before is not None:
                module.forward = before

        before = vars(module).get("forward")
        module.forward = inside
        try:
            return wrapper()
        finally:
            restore()

    return wrapped


def is_a(instance: Any, name: str) -> bool:
    """Whether it is of a class of that name, in either of Lightning's two namespaces."""
    return any(cls.__name__ == name for cls in type(instance).__mro__)
