"""Which of several features a run goes by: the user's, or those that predict the labels there are best."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from lightning.pytorch.utilities import rank_zero_info

from lightning_diffal.diffusion.graph_against_models import compare
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.labels import num_classes_found
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.features.graph_files import GraphFolder
from lightning_diffal.plugin.model.earlier_predictions import earlier_predictions
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
    """Of `features="auto"`, the features that predict labels best, and the accuracy of each.

    Inputs and the model as it came are compared by the leave-one-out accuracy of labels that diffuse over their graphs;
    of equals the first is taken. The embedding of this round was trained on these very labels, which are together in it
    whatever it is worth. It is judged by what the models of earlier rounds said of points before these were labeled,
    and taken where that was right more often than the best graph, by two standard errors. Nothing is compared where
    nothing reads the features.

    Cost: a graph for each, those of fixed features once in a run, and `leave_one_out`.
    """
    source, labeled = config.feature_source, len(state.pool.labeled)
    trained = embedded.embeddings is not None
    read = trained or config.learn_from_graph is not None
    if source is None or source.kind != "auto" or labeled < 2 or len(state.feature_sets) + trained < 2 or not read:
        return state, {}
    device, neighbors = trainer.strategy.root_device, getattr(config.selector, "neighbors", None)
    graphs = {}
    for name, rows in state.feature_sets.items():
        with timer.stage("graph"):
            build = GraphFolder(state.ledger.folder, name)
            graphs[name] = build(
                rows.to(device), neighbors, backend="exact", progress=timer.track, ranks=ranks_of(trainer)
            )
    with timer.stage("comparison"):
        best, accuracy, reason = from_rank_zero(trainer, lambda: judge(state, graphs, trained, device))
    rank_zero_info(f'features="auto": {best}, by {reason}.')
    if best != EMBEDDING:
        return with_feature_set(state, best), accuracy
    return replace(state, features=embedded.embeddings, build_feature_graph=build_graph), accuracy


def judge(
    state: RunState, graphs: Mapping[str, NeighborGraph], trained: bool, device: torch.device
) -> tuple[str, dict[str, float], str]:
    """The best features, the accuracy of each, and these numbers in words.

    Args:
        trained: Whether the embedding of this round is there, too.
    """
    labels = state.pool.labels[torch.tensor(state.candidates)].to(device)
    num_classes = num_classes_found(labels)
    left_out = {name: leave_one_out(graph, labels, num_classes) for name, graph in graphs.items()}
    accuracy = {name: found.accuracy for name, found in left_out.items()}
    best = max(accuracy, key=lambda name: accuracy[name])
    numbers = ", ".join(f"{name} {value:.3f}" for name, value in accuracy.items())
    reason = f"the leave-one-out accuracy of {len(state.pool.labeled)} labels ({numbers})"
    judged = left_out[best]
    compared = compare(judged.rows, judged.correct, labels, earlier_predictions(state, device))
    if not trained or compared.count < 2:
        return best, accuracy, reason
    accuracy[EMBEDDING] = compared.models
    reason += (
        f" and the models' predictions of the {compared.count} points asked last before they were labeled "
        f"({compared.models:.3f}, {best} {compared.models + compared.lead:.3f})"
    )
    ahead = compared.lead < -2 * compared.standard_error
    return EMBEDDING if ahead else best, accuracy, reason
