"""From a fitted model to the labels of the next points: the steps of a query, in order."""

from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, Dataset

from lightning_diffal.labeling.people import People
from lightning_diffal.labels import num_classes_found
from lightning_diffal.plugin.answers import QueryAnswers
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.copy_loader import pool_loader, with_dataset
from lightning_diffal.plugin.data.loader_tree import flatten_loaders
from lightning_diffal.plugin.data.loaders import hide_labels
from lightning_diffal.plugin.distributed.rank_agreement import check_same_choice
from lightning_diffal.plugin.expected_cost import say_cost_of_choice
from lightning_diffal.plugin.model.earlier_predictions import earlier_predictions
from lightning_diffal.plugin.model.embedding import Embedded, embed
from lightning_diffal.plugin.model.layer_cache import LayerCache
from lightning_diffal.plugin.model.shards import all_gather_shards, ranks_of, shard_of_rank
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.dataset.fingerprint import length_of
from lightning_diffal.pool.oracle import DatasetOracle, num_classes_of
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import choose
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot, require


def embed_pool(
    trainer: Any,
    module: Any,
    config: RunConfig,
    state: RunState,
    timer: StageTimer,
    cache: LayerCache | None = None,
) -> Embedded:
    """What the selector needs to know of all candidates: each rank embeds its shard, then they are all-gathered.

    Args:
        cache: Of a frozen layer, from earlier rounds.
    """
    needs = needs_of_query(config, state)
    if not needs:
        return Embedded(None, None, None, None)
    shard = shard_of_rank(state.candidates, trainer.global_rank, trainer.world_size)
    order = None if cache is None else cache.known_first(shard)
    points = shard if order is None else [shard[place] for place in order.tolist()]
    loader = pool_loader(pool_source(trainer, config, state), points, config.pool_batch_size)
    with temporary_seed(config.seed_for(state.round)):
        embedded = embed_points(trainer, module, config, state, loader, needs, timer, points, cache)
    if order is not None:
        embedded = embedded.take(order.argsort())
    return all_gather_shards(trainer, embedded, len(state.candidates))


def choose_points(
    trainer: Any, config: RunConfig, state: RunState, embedded: Embedded, timer: StageTimer
) -> tuple[Query, QueryAnswers]:
    """The selector's choice, in indices of the dataset, and the answers it was given on the way.

    Selectors that need a graph build it here. Every rank makes the same choice from the same values.
    """
    candidates = torch.tensor(state.candidates)
    labels = state.pool.labels[candidates]
    needs = config.selector.needs | needs_of_query(config, state)
    device = trainer.strategy.root_device if needs else labels.device
    snapshot = Snapshot(
        labels=labels.to(device),
        num_classes=count_classes(config, state, embedded),
        embeddings=embedded.embeddings,
        features=state.features.to(device) if state.features is not None and "features" in needs else None,
        logits=embedded.logits,
        stochastic=embedded.stochastic,
        queries_before=sum(record.unreached is not None for record in state.ledger.records),
        ranks=ranks_of(trainer),
        build_feature_graph=state.build_feature_graph,
        earlier=earlier_predictions(state, device),
    )
    size = min(config.query_size, config.budget - len(state.pool.labeled))
    size_left = min(size, snapshot.num_unlabeled)
    answers = QueryAnswers(trainer, state.oracle, candidates, size_left, embedded.num_classes)
    # People are asked for the whole query at once; until then the model's prediction stands in.
    answer = answers if state.oracle.immediate else lambda rows: require(snapshot.logits, "logits")[rows].argmax(dim=1)
    generator = torch.Generator(device).manual_seed(config.seed_for(state.round))
    if trainer.is_global_zero:
        earlier = [record.seconds for record in state.ledger.records if "query" in record.seconds]
        say_cost_of_choice(config.selector, snapshot, size_left, earlier[-1] if earlier else {})
    rows = choose(config.selector, snapshot, size, answer=answer, generator=generator, timer=timer)
    query = Query(candidates[rows.indices.cpu()], rows.scores.cpu(), rows.reached.cpu(), rows.unreached)
    check_same_choice(trainer, query.indices.tolist())
    return query, answers


def predicted_classes(state: RunState, embedded: Embedded, query: Query) -> list[int]:
    """The model's class for each point of a query, if its logits were read."""
    if embedded.logits is None:
        return []
    rows = torch.searchsorted(torch.tensor(state.candidates), query.indices)
    predicted: list[int] = embedded.logits[rows.to(embedded.logits.device)].argmax(dim=1).tolist()
    return predicted


def embed_points(
    trainer: Any,
    module: Any,
    config: RunConfig,
    state: RunState,
    loader: "DataLoader[Any]",
    needs: frozenset[str],
    timer: StageTimer,
    points: list[int],
    cache: LayerCache | None,
) -> Embedded:
    """One pass of a loader through the model, as the user configured it.

    Args:
        points: Their indices.
        cache: Of a frozen layer; what it lacks is added.
    """
    return embed(
        trainer,
        module,
        loader,
        needs=needs,
        reading=config.reading(known_classes(config, state)),
        passes=config.selector.passes or 1,
        timer=timer,
        cached=None if cache is None else cache.attach(module, str(trainer.precision), points),
    )


def layer_cache_for(trainer: Any, config: RunConfig, state: RunState, earlier: LayerCache | None) -> LayerCache | None:
    """The cache of earlier rounds, or an empty one; None if the user named no `cache_layer`."""
    if config.cache_layer is None or (earlier is not None and len(earlier.block) == len(state.pool)):
        return earlier
    return LayerCache(config.cache_layer, len(state.pool), config.folder_for(trainer))


def needs_of_query(config: RunConfig, state: RunState) -> frozenset[str]:
    """What the selector reads, and logits where the model's prediction stands in for answers or is compared."""
    stand_in = config.selector.asks_during_query and not state.oracle.immediate
    source = config.feature_source
    chosen_among = source is not None and source.kind == "auto" and "features" in config.selector.needs
    compared = config.learn_from_graph is not None or chosen_among
    needs = config.selector.needs | ({"logits"} if stand_in or compared else set())
    if isinstance(state.oracle, People):  # who see the prediction, and what the graph says
        needs |= {"features", "logits"}
    # Without fixed features, as in a fast_dev_run, the embedding stands in for them; "auto" compares both.
    fixed = source is not None and source.kind != "auto" and state.ledger.folder is not None
    return needs - {"features"} | ({"embeddings"} if "features" in needs and not fixed else set())


def pool_source(trainer: Any, config: RunConfig, state: RunState) -> "DataLoader[Any]":
    """A loader over the whole dataset without training augmentation, if the user gives one."""
    pool = config.pool
    for owner in (trainer.datamodule, trainer.lightning_module):
        if pool is None and hasattr(owner, "pool_dataloader"):
            pool = owner.pool_dataloader()
    if pool is None:
        return hide_labels(state.loader, config.label_field) if config.people is not None else state.loader
    loader = with_dataset(state.loader, pool) if isinstance(pool, Dataset) else flatten_loaders(pool)[0]
    size = length_of(loader.dataset)
    if size != len(state.pool):
        raise MisconfigurationException(
            f"pool= or pool_dataloader(): {size} points, where the training dataset has {len(state.pool)}. Both need "
            "the same points in the same order."
        )
    return loader


def known_classes(config: RunConfig, state: RunState) -> int | None:
    """How many classes there are, as far as the user or the dataset's `classes` say; its labels are not read."""
    if config.num_classes is not None:
        return config.num_classes
    names = config.classes or getattr(config.oracle, "classes", None)
    if isinstance(names, (list, tuple)):
        return len(names)
    return num_classes_of(state.dataset)


def count_classes(config: RunConfig, state: RunState, embedded: Embedded) -> int:
    """`num_classes`, else the width of the classifier, else as the dataset says; no fewer than were found."""
    count = config.num_classes or embedded.num_classes or known_classes(config, state)
    if count is None and config.selector.asks_during_query and isinstance(state.oracle, DatasetOracle):
        count = state.oracle.count_classes()
    return max(count or 0, num_classes_found(state.pool.labels))
