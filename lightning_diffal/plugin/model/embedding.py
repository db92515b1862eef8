"""One pass over the pool with the model as it is, in eval mode."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_diffal.plugin.model.batches import overrides
from lightning_diffal.plugin.model.dropout import DropoutPasses
from lightning_diffal.plugin.model.layer_cache import CachedPass
from lightning_diffal.plugin.model.reader import ModelReader, ModelReading
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.snapshot import StochasticPasses

# Embeddings of more numbers than this, 1 GiB in float32, are kept in float16: 524,288 points of 512 dimensions. In
# smaller pools nothing is rounded, and no choice can change.
HALF_ABOVE: Final = 2**28


@dataclass(frozen=True, eq=False)
class Embedded:
    """What the model computed for the points of a loader, in their order. None: not needed."""

    embeddings: Tensor | None
    logits: Tensor | None
    stochastic: StochasticPasses | None
    num_classes: int | None

    def take(self, rows: Tensor) -> "Embedded":
        """The same of these rows, in their order."""

        def of(part: Tensor | None) -> Tensor | None:
            return None if part is None else part[rows.to(part.device)]

        passes = self.stochastic
        if passes is not None:
            order = rows.to(passes.probabilities.device)
            passes = StochasticPasses(passes.probabilities[order], passes.expected_entropy[order])
        return Embedded(of(self.embeddings), of(self.logits), passes, self.num_classes)


def embed(
    trainer: Any,
    module: Any,
    loader: "DataLoader[Any]",
    *,
    needs: frozenset[str],
    reading: ModelReading,
    passes: int,
    timer: StageTimer,
    stage: str = "embedding",
    cached: AbstractContextManager[CachedPass] | None = None,
) -> Embedded:
    """Embeddings, logits or stochastic passes of every point of a loader, as `needs` says, reading it once.

    Eval mode, no gradients, the trainer's own device and precision, through the batch hooks of module and DataModule.
    Everything about the model is afterwards as it was before: device, training flags, hooks.

    Args:
        passes: Forward passes with only the dropout layers in training mode, if "stochastic" is needed.
        stage: What the timer calls this pass.
        cached: Stands in for a layer whose output is kept.

    Memory: n · (d + c) numbers, and one batch; of more than `HALF_ABOVE` numbers, embeddings are kept in float16.
    """
    reader = ModelReader(trainer, module, reading)
    rows, classes = RowBuffer(len(loader.dataset), trainer.world_size), None  # type: ignore[arg-type]
    to_device = batch_transfer(trainer, module, trainer.precision_plugin.convert_input)
    size = loader.batch_sampler.batch_size  # type: ignore[union-attr]
    dropout = DropoutPasses(module, passes, reader.logits_in) if "stochastic" in needs else None
    with eval_mode(trainer, module), reader.hook.attach(), cached or nullcontext() as cached_pass:
        for batch_idx, batch in enumerate(timer.track_stage(stage, loader)):
            count, batch = min(size, rows.remaining), to_device(batch)  # noqa: PLW2901, the host's copy may go
            first = batch_idx == 0
            if cached_pass is not None:
                cached_pass.begin_batch(rows.filled, count)
            # Passes with dropout need one without only for the first batch, to find the classifier.
            if first or needs != {"stochastic"}:
                embedding, logits = reader.read(batch, batch_idx, count, needs)
                classes = classes if logits is None else logits.shape[1]
                if embedding is not None:
                    rows.put("embeddings", embedding)
                if logits is not None and "logits" in needs:
                    rows.put("logits", logits)
            if dropout is not None:
                again = partial(reader.run_for_logits, batch, batch_idx)
                if first:
                    assert logits is not None
                    # Ranks that share a sharded model must run it equally often.
                    allowed = dropout.allows_repeating(again, count, logits)
                    dropout.repeat_rows = trainer.strategy.reduce_boolean_decision(allowed, all=True)
                mean, entropy = dropout.average(again, count)
                rows.put("mean", mean)
                rows.put("entropy", entropy[:, None])
            rows.filled += count
    stochastic = StochasticPasses(rows.parts["mean"], rows.parts["entropy"][:, 0]) if "stochastic" in needs else None
    return Embedded(rows.parts.get("embeddings"), rows.parts.get("logits"), stochastic, classes)


class RowBuffer:
    """Tensors of n rows that are filled batch by batch, in float32 or more; embeddings of large pools in float16.

    Args:
        world: Ranks, each of which has as many rows.
    """

    def __init__(self, size: int, world: int = 1) -> None:
        self.size, self.world, self.filled, self.parts = size, world, 0, dict[str, Tensor]()

    @property
    def remaining(self) -> int:
        return self.size - self.filled

    def put(self, name: str, values: Tensor) -> None:
        if name not in self.parts:
            dtype = torch.promote_types(values.dtype, torch.float32)
            if name == "embeddings" and self.world * self.size * values.shape[1] > HALF_ABOVE:
                dtype = torch.float16
            self.parts[name] = torch.empty(self.size, values.shape[1], dtype=dtype, device=values.device)
        part = self.parts[name]
        if values.shape[1] != part.shape[1]:
            raise MisconfigurationException(
                f"The {name} of one batch have {part.shape[1]} columns and of another {values.shape[1]}: points of "
                "different sizes cannot be compared. layer=... names a layer whose output is as wide for all, as one "
                "behind a pooling; embedding=lambda module, batch: ... gives any other."
            )
        if part.dtype == torch.float16 and float(values.abs().amax()) > torch.finfo(torch.float16).max:
            raise MisconfigurationException(
                f"The {name} of {self.world * self.size} points are kept in float16, and a batch holds values up to "
                f"{float(values.abs().amax()):.3g}, beyond its range of 65,504. A layer behind a normalization, or "
                "embedding=lambda module, batch: ..., gives smaller ones; candidates=... makes the pool smaller."
            )
        part[self.filled : self.filled + len(values)] = values


@contextmanager
def eval_mode(trainer: Any, module: Any) -> Iterator[None]:
    """The model on the trainer's device in eval mode; afterwards device and training flags are what they were."""
    device, stage = module.device, trainer.state.stage
    with ExitStack() as stack:
        stack.enter_context(kept_modes(module))
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
            module.to(device)


@contextmanager
def kept_modes(module: nn.Module) -> Iterator[None]:
    """Afterwards every submodule is in the mode, training or eval, that it is in now."""
    training = {child: child.training for child in module.modules()}
    try:
        yield
    finally:
        # Each its own flag: `.train()` on the root would unfreeze frozen BatchNorm.
        for child, flag in training.items():
            child.training = flag


def batch_transfer(trainer: Any, module: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that moves a batch to the device as before a training step, through the user's hooks.

    Args:
        convert: To the precision of what the batch is passed to.
    """
    data = trainer.datamodule
    owner = data if data is not None and overrides(data, "on_before_batch_transfer") else module
    hooks = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    if not any(overrides(who, hook) for who in (data, module) for hook in hooks):
        # Lightning asks its hooks for every batch, which costs as much as a small model does.
        if trainer.strategy.root_device.type == "cpu":
            return convert
        return lambda batch: move_data_to_device(convert(batch), trainer.strategy.root_device)
    return lambda batch: trainer.strategy.batch_to_device(convert(owner.on_before_batch_transfer(batch, 0)))
