"""A small part of a round before anything is trained, so that what cannot work fails now and not after hours."""

from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.copy_loader import pool_loader
from lightning_diffal.plugin.query import embed_points, pool_source
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.fingerprint import is_random
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.progress import StageTimer

POINTS = 2


def dry_run(trainer: Any, module: Any, config: RunConfig, state: RunState) -> int | None:
    """Check the pool's size and embed a few points, before the first label is asked for.

    Returns the width of the classifier, None if the selector needs no model.
    """
    source = pool_source(trainer, config, state)
    config.selector.check_pool(len(state.candidates))
    if not config.selector.needs:
        return None
    with temporary_seed(config.seed):
        loader = pool_loader(source, state.candidates[:POINTS], None)
        embedded = embed_points(trainer, module, config, loader, config.selector.needs, StageTimer())
    if source is state.loader and is_random(state.dataset, len(state.pool)):
        rank_zero_warn(
            "The pool is embedded through the training dataset, which gives other items each time, as random "
            "augmentation does. A pool_dataloader() in the DataModule, or pool=, without it embeds better."
        )
    return embedded.num_classes
