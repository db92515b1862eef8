"""Which of several features a run goes by: the user's, or those that predict the labels there are best."""

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
from lightning_diffal.progress import StageTimer

EMBEDDING: Final = "embedding"


def with_features(state: RunState) -> RunState:
    """The state with the only fixed features, or with those that did best in the last query; the first before any."""
    if not state.feature_sets:
        return state
    judged = [record.feature_accuracy for record in state.ledger.records if record.feature_accuracy]
    accuracy = judged[-1] if judged else {}
    name = max(state.feature_sets, key=lambda name: accuracy.get(name, 0.0))  # the first of equals
    return with_feature_set(state, name)


def with_feature_set(state: RunState, name: str) -> RunState:
    build = GraphFolder(state.ledger.folder, name)
    return replace(state, features=state.feature_sets[name], build_feature_graph=build)


def with_best_features(
    trainer: Any, config: RunConfig, state: RunState, embedded: Embedded, timer: StageTimer
) -> tuple[RunState, dict[str, float]]:
    """Of `features="auto"`, the features over which known labels diffuse best, and the accuracy of each.

    Inputs, the model as it came and the embedding of this round are compared by the leave-one-out accuracy of diffused
    labels on the labeled points; of equals the first is taken.

    Cost: a graph for each, those of fixed features once in a run, and `leave_one_out`.
    """
    source, labeled = config.feature_source, len(state.pool.labeled)
    if source is None or source.kind != "auto" or embedded.embeddings is None or labeled < 2:
        return state, {}
    device, neighbors = trainer.strategy.root_device, getattr(config.selector, "neighbors", None)
    labels = state.pool.labels[torch.tensor(state.candidates)].to(device)
    num_classes = max(2, int(labels.max()) + 1)
    points = {**state.feature_sets, EMBEDDING: embedded.embeddings}
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
