"""Which of several features a run goes by: the user's, or those that predict the labels there are best."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.features.graph_files import GraphFolder
from lightning_diffal.plugin.model.embedding import Embedded
from lightning_diffal.plugin.model.shards import ranks_of
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.record import Record
from lightning_diffal.progress import StageTimer

EMBEDDING: Final = "embedding"


def with_features(state: RunState) -> RunState:
    """The state with the only fixed features, or with those that did best in the last query; the first before any."""
    if not state.feature_sets:
        return state
    return with_feature_set(state, best_features(list(state.feature_sets), state.ledger.records))


def best_features(names: Sequence[str], records: Sequence[Record]) -> str:
    """Of several features those that did best in the last query; the first of equals, and before any query."""
    judged = [record.feature_accuracy for record in records if record.feature_accuracy]
    accuracy = judged[-1] if judged else {}
    return max(names, key=lambda name: accuracy.get(name, 0.0))


def with_feature_set(state: RunState, name: str) -> RunState:
    build = GraphFolder(state.ledger.folder, name)
    return replace(state, features=state.feature_sets[name], build_feature_graph=build)


def with_best_features(
    trainer: Any, config: RunConfig, state: RunState, embedded: Embedded, timer: StageTimer
) -> tuple[RunState, dict[str, float]]:
    """Of `features="auto"`, the features over which known labels diffuse best, and the accuracy of each.

    Inputs, the model as it came and the embedding of this round are compared by the leave-one-out accuracy of diffused
    labels on the labeled points; of equals the first is taken. The embedding is left out where the selector needs none,
    and nothing is compared where nothing reads the features.

    Cost: a graph for each, those of fixed features once in a run, and `leave_one_out`.
    """
    source, labeled = config.feature_source, len(state.pool.labeled)
    points = dict(state.feature_sets)
    if embedded.embeddings is not None:
        points[EMBEDDING] = embedded.embeddings
    read = EMBEDDING in points or config.learn_from_graph is not None
    if source is None or source.kind != "auto" or labeled < 2 or len(points) < 2 or not read:
        return state, {}
    device, neighbors = trainer.strategy.root_device, getattr(config.selector, "neighbors", None)
    labels = state.pool.labels[torch.tensor(state.candidates)].to(device)
    num_classes = max(2, int(labels.max()) + 1)
    accuracy: dict[str, float] = {}
    for name, rows in points.items():
        with timer.stage("graph"):
            build = GraphFolder(None if name == EMBEDDING else state.ledger.folder, name)
            graph = build(rows.to(device), neighbors, backend="exact", progress=timer.track, ranks=ranks_of(trainer))
        with timer.stage("comparison"):
            predicted = partial(leave_one_out, graph, labels, num_classes)
            accuracy[name] = from_rank_zero(trainer, lambda: predicted().accuracy)  # noqa: B023, called at once
    best = max(accuracy, key=lambda name: accuracy[name])
    found = ", ".join(f"{name} {value:.3f}" for name, value in accuracy.items())
    rank_zero_info(f'features="auto": {best}, by the leave-one-out accuracy of {labeled} labels ({found}).')
    if best != EMBEDDING:
        return with_feature_set(state, best), accuracy

    def built(features: Tensor, wanted: int | None, **options: Any) -> NeighborGraph:
        # The embedding came last.
        return graph if wanted == neighbors else build_graph(features, wanted, **options)

    return replace(state, features=embedded.embeddings, build_feature_graph=built), accuracy
