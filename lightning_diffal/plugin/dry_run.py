"""The data and the model are tried before a label is spent, so that what cannot work fails now and not after hours."""

from collections.abc import Sequence
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import Subset

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.copy_loader import pool_batch_size, pool_loader
from lightning_diffal.plugin.data.loaders import UnlabeledView
from lightning_diffal.plugin.expected_cost import BatchTimer, say_cost_of_embedding
from lightning_diffal.plugin.model.check_cache import check_cache_layer, check_pool_repeats, try_cache
from lightning_diffal.plugin.model.embedding import Embedded
from lightning_diffal.plugin.model.layer_cache import LayerCache
from lightning_diffal.plugin.query import embed_points, known_classes, needs_of_query, pool_source
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.dataset.classes import describe
from lightning_diffal.pool.dataset.fingerprint import is_random, sample_indices
from lightning_diffal.pool.dataset.items import MapStyle, integer_positions
from lightning_diffal.pool.oracle import DatasetOracle
from lightning_diffal.pool.randomness import temporary_seed

# Batches that are embedded, spread over the pool.
BATCHES = 4
# First labels less likely than this hint at another number of classes.
UNLIKELY = 1e-6


def dry_run(trainer: Any, module: Any, config: RunConfig, state: RunState) -> int | None:
    """Embed a few batches and compare outputs with classes; returns the number of outputs if it is known."""
    source = pool_source(trainer, config, state)
    if config.label is None:
        check_label_position(state.dataset, len(state.pool))
    config.selector.check_pool(min(len(state.candidates), config.candidates or len(state.candidates)))
    needs = needs_of_query(config, state)
    if not needs:
        return None
    with temporary_seed(config.seed):
        size = config.pool_batch_size or pool_batch_size(source)
        points = spread_batches(state.candidates, size)
        loader = pool_loader(source, points, size)

        timers = [BatchTimer(), BatchTimer()]  # of the pass, and of a second one from a cache
        timer = timers[0]

        def embed_some(cache: LayerCache | None) -> Embedded:
            return embed_points(trainer, module, config, state, loader, needs, timers.pop(0), points, cache)

        if config.cache_layer is None:
            embedded = embed_some(None)
        else:
            check_cache_layer(trainer.strategy, module, config.cache_layer, config.layer, needs)
            check_pool_repeats(config.cache_layer, source.dataset, len(state.pool), config.label_field)
            embedded = try_cache(config.cache_layer, len(state.pool), embed_some)
    check_num_classes(config, state, embedded.num_classes)
    seen = min(len(state.candidates), (config.candidates or len(state.candidates)) + config.budget)
    say_cost_of_embedding(seen, size, trainer.world_size, embedded, timer, getattr(config.selector, "neighbors", None))
    through_training = source is state.loader or isinstance(source.dataset, UnlabeledView)
    if through_training and is_random(state.dataset, len(state.pool), config.label_field):
        rank_zero_warn(
            "The pool is embedded through the training dataset, which gives other items each time, as random "
            "augmentation does. A pool_dataloader() in the DataModule, or pool=, without it embeds better."
        )
    return embedded.num_classes


def check_label_position(dataset: MapStyle, size: int) -> None:
    """Refuse items of several integers, unless the label is the second and the others are the index, as (x, y, i)."""
    with temporary_seed(0):
        samples = [(index, dataset[index]) for index in sample_indices(size)[-3:]]
    places = integer_positions(samples[0][1])
    for place in places if len(places) > 1 else []:
        if place == 1 or all(item[place] in indices_inside(dataset, index) for index, item in samples):
            continue
        item = samples[0][1]
        raise TypeError(
            f"An item of the dataset is {describe(item)} with integers at the positions {places}: it has no label that "
            f"can be found, since each of them may be it. label={places[0]} or label={places[-1]} says which."
        )


def indices_inside(dataset: MapStyle, index: int) -> list[int]:
    """The index of a point in a dataset and in those that it is a subset of."""
    found = [index]
    while isinstance(dataset, Subset):
        dataset, index = dataset.dataset, dataset.indices[index]
        found.append(int(index))
    return found


def spread_batches(indices: Sequence[int], size: int) -> list[int]:
    """The indices of the first batch, of the last, and of some between them."""
    if len(indices) <= BATCHES * size:
        return list(indices)
    starts = [batch * (len(indices) - size) // (BATCHES - 1) for batch in range(BATCHES)]
    return [index for start in starts for index in indices[start : start + size]]


def check_num_classes(config: RunConfig, state: RunState, num_outputs: int | None) -> None:
    """Refuse a query that would need the number of classes where nothing says it; say so if outputs are too many."""
    known = known_classes(config, state)
    has_targets = isinstance(state.oracle, DatasetOracle) and state.oracle.targets is not None
    if num_outputs is None and known is None and config.selector.asks_during_query and not has_targets:
        raise MisconfigurationException(
            f"{config.callback}(num_classes=None): neither the model's output nor the dataset says how many classes "
            "there are. num_classes=..., classes=[...] or logits=lambda module, batch: ... does."
        )
    if num_outputs is not None and known is not None and 2 <= known < num_outputs:
        warn_of_wide_classifier(num_outputs, f"there are {known} classes")


def check_first_labels(labels: Sequence[int], num_outputs: int | None) -> None:
    """Say so if the first labels are hardly those of as many classes as the classifier has outputs.

    Of m labels of c equally frequent classes all are below k with probability (k / c)^m.
    """
    found = max(labels, default=0) + 1
    if num_outputs is not None and found > 1 and (found / num_outputs) ** len(labels) < UNLIKELY:
        warn_of_wide_classifier(num_outputs, f"all {len(labels)} first labels are of the first {found} classes")


def warn_of_wide_classifier(num_outputs: int, but: str) -> None:
    rank_zero_warn(
        f"The classifier has {num_outputs} outputs and {but}. If the outputs are not the logits, "
        "logits=lambda module, batch: ... gives them; a model with one output for each class is enough."
    )
