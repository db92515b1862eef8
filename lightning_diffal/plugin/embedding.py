"""One pass over the pool with the model as it is."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from lightning_diffal.plugin.batches import Forward, model_runner, overrides
from lightning_diffal.plugin.dropout import DropoutPasses
from lightning_diffal.plugin.layer_hook import Tap
from lightning_diffal.plugin.strategies import through_wrapper
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.snapshot import StochasticPasses


@dataclass(frozen=True, eq=False)
class Embedded:
    """What the model says of the points that were passed through it, in their order."""

    embeddings: Tensor | None
    logits: Tensor | None
    stochastic: StochasticPasses | None
    num_classes: int | None


def embed(
    trainer: Any,
    module: Any,
    loader: "DataLoader[Any]",
    *,
    needs: frozenset[str],
    layer: str | None,
    forward: Forward | None,
    passes: int,
    timer: StageTimer,
) -> Embedded:
    """What a selector needs to know of every point of a loader, in one reading of it.

    Eval mode, no gradients, the trainer's own device and precision, through the batch hooks of module and DataModule.
    Everything about the model is afterwards as it was before: device, training flags, hooks.

    Args:
        passes: Forward passes with only the dropout layers awake, if "stochastic" is needed.

    Memory: n · (d + c) numbers, and one batch.
    """
    tap, rows, classes = Tap(module, layer), Rows(len(loader.dataset)), None  # type: ignore[arg-type]
    run = through_wrapper(trainer.strategy, module, model_runner(module, forward))
    to_device = batch_mover(trainer, module)
    size = loader.batch_sampler.batch_size  # type: ignore[union-attr]

    def passed(batch: Any, batch_idx: int) -> Any:
        tap.clear()
        with trainer.precision_plugin.forward_context():
            return run(batch, batch_idx)

    dropout = None
    if "stochastic" in needs:
        dropout = DropoutPasses(module, passes, lambda count, output: known_logits(tap.logits(count, output), output))
    with lent(trainer, module), tap.open():
        for batch_idx, batch in enumerate(timer.track_stage("embedding", loader)):
            count, batch = min(size, rows.missing), to_device(batch)  # noqa: PLW2901, the host's copy may go
            first = batch_idx == 0
            # Passes with dropout need one without only in the beginning, to find out about the model.
            if first or needs != {"stochastic"}:
                output = passed(batch, batch_idx)
                logits = tap.logits(count, output)
                classes = None if logits is None else logits.shape[1]
                if first and tap.classifier is not None:
                    tap.keep_only(tap.classifier[0])
                if "embeddings" in needs:
                    rows.put("embeddings", tap.embedding(count))
                if "logits" in needs:
                    rows.put("logits", known_logits(logits, output))
            if dropout is not None:
                again = partial(passed, batch, batch_idx)
                if first:
                    # Ranks that share a model must pass it equally often.
                    allowed = dropout.allows_repeating(again, count, known_logits(logits, output))
                    dropout.together = trainer.strategy.reduce_boolean_decision(allowed, all=True)
                mean, entropy = dropout.averaged(again, count)
                rows.put("mean", mean)
                rows.put("entropy", entropy[:, None])
            rows.filled += count
    several = StochasticPasses(rows.parts["mean"], rows.parts["entropy"][:, 0]) if "stochastic" in needs else None
    return Embedded(rows.parts.get("embeddings"), rows.parts.get("logits"), several, classes)


class Rows:
    """Tensors of n rows that are filled batch by batch, in float32 or more."""

    def __init__(self, size: int) -> None:
        self.size, self.filled, self.parts = size, 0, dict[str, Tensor]()

    @property
    def missing(self) -> int:
        return self.size - self.filled

    def put(self, name: str, values: Tensor) -> None:
        if name not in self.parts:
            dtype = torch.promote_types(values.dtype, torch.float32)
            self.parts[name] = torch.empty(self.size, values.shape[1], dtype=dtype, device=values.device)
        part = self.parts[name]
        if values.shape[1] != part.shape[1]:
            raise MisconfigurationException(
                f"The {name} of one batch have {part.shape[1]} columns and of another {values.shape[1]}: points of "
                "different sizes cannot be compared. layer=... names a layer whose output is the same for all."
            )
        part[self.filled : self.filled + len(values)] = values


@contextmanager
def lent(trainer: Any, module: Any) -> Iterator[None]:
    """The model on the trainer's device in eval mode, to be given back exactly as it was."""
    device, stage = module.device, trainer.state.stage
    training = {child: child.training for child in module.modules()}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        # A hook added after torch.compile never fires in compiled code.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            module.to(trainer.strategy.root_device)
            module.eval()
            trainer.predicting = True  # users ask `trainer.training` before they augment
            yield
        finally:
            trainer.state.stage = stage
            # Each its own flag: `.train()` on the root would wake frozen BatchNorm.
            for child, flag in training.items():
                child.training = flag
            module.to(device)


def batch_mover(trainer: Any, module: Any) -> Callable[[Any], Any]:
    """How a batch gets to the device as the training step would get it, through the hooks of the user."""
    data, convert = trainer.datamodule, trainer.precision_plugin.convert_input
    owner = data if data is not None and overrides(data, "on_before_batch_transfer") else module
    hooks = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    if not any(overrides(who, hook) for who in (data, module) for hook in hooks):
        # Lightning asks its hooks for every batch, which costs as much as a small model does.
        if trainer.strategy.root_device.type == "cpu":
            return convert  # type: ignore[no-any-return]
        return lambda batch: move_data_to_device(convert(batch), trainer.strategy.root_device)
    return lambda batch: trainer.strategy.batch_to_device(convert(owner.on_before_batch_transfer(batch, 0)))


def known_logits(logits: Tensor | None, output: Any) -> Tensor:
    if logits is None:
        raise MisconfigurationException(
            "The selector needs logits, and the last Linear that ran gave no row of them for each point, nor did the "
            f"model: it returned {type(output).__name__}. A forward=... that returns (points, classes) would do."
        )
    return logits
