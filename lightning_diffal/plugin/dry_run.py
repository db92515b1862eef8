"""The data and the model are tried before a label is spent, so that what cannot work fails now and not after hours."""

from collections.abc import Sequence
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.copy_loader import batch_size_of, pool_loader
from lightning_diffal.plugin.query import embed_points, known_classes, pool_source
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.classes import unsupported
from lightning_diffal.pool.fingerprint import is_random, sample_indices
from lightning_diffal.pool.oracle import DatasetOracle
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.progress import StageTimer

# Batches that are embedded, spread over the pool.
BATCHES = 4


def dry_run(trainer: Any, module: Any, config: RunConfig, state: RunState) -> int | None:
    """Read a few labels, embed a few batches, compare classes; the number of the model's outputs if it is known."""
    source = pool_source(trainer, config, state)
    config.selector.check_pool(len(state.candidates))
    if isinstance(state.oracle, DatasetOracle):
        state.oracle([state.candidates[row] for row in sample_indices(len(state.candidates))])
    if not config.selector.needs:
        return None
    with temporary_seed(config.seed):
        size = config.pool_batch_size or batch_size_of(source)
        loader = pool_loader(source, spread_batches(state.candidates, size), size)
        embedded = embed_points(trainer, module, config, state, loader, config.selector.needs, StageTimer())
    check_width(embedded.num_classes, known_classes(config, state))
    if source is state.loader and is_random(state.dataset, len(state.pool), config.label_field):
        rank_zero_warn(
            "The pool is embedded through the training dataset, which gives other items each time, as random "
            "augmentation does. A pool_dataloader() in the DataModule, or pool=, without it embeds better."
        )
    return embedded.num_classes


def spread_batches(indices: Sequence[int], size: int) -> list[int]:
    """The indices of the first batch, of the last, and of some between them."""
    if len(indices) <= BATCHES * size:
        return list(indices)
    starts = [batch * (len(indices) - size) // (BATCHES - 1) for batch in range(BATCHES)]
    return [index for start in starts for index in indices[start : start + size]]


def check_width(num_outputs: int | None, num_classes: int | None) -> None:
    """Say so if the classifier is wider than there are classes: it may be another layer than the classifier."""
    if num_outputs is not None and num_classes is not None and 2 <= num_classes < num_outputs:
        rank_zero_warn(
            f"The classifier has {num_outputs} outputs and there are {num_classes} classes: some outputs are never "
            f"labeled. If they are not the logits, logits=lambda module, batch: ... gives them; else a model with "
            f"{num_classes} outputs does without."
        )


def check_classes(indices: Sequence[int], labels: Sequence[int], num_outputs: int | None) -> None:
    """Refuse labels that the classifier has no output for."""
    wrong = [
        (index, label) for index, label in zip(indices, labels, strict=True) if label >= (num_outputs or label + 1)
    ]
    if wrong:
        index, label = wrong[0]
        raise MisconfigurationException(
            f"label {label} of the point with index {index}, and the classifier has {num_outputs} outputs, for the "
            f"classes 0 to {(num_outputs or 0) - 1}. A model with at least {label + 1} outputs is needed, or labels "
            f"counted from 0. If these are no classes: {unsupported('regression')}"
        )
