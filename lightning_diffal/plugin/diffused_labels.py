"""Labels that diffuse over the graph of the features: points to train on, and predictions for the whole pool."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.diffusion.calibration import expected_accuracy
from lightning_diffal.diffusion.learn_from_graph import DiffusedPoints, LearnFromGraph
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED, num_classes_found
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.features.fixed import MAX_INPUT_SIZE
from lightning_diffal.plugin.known_pool import KnownPool
from lightning_diffal.plugin.model.earlier_predictions import earlier_predictions
from lightning_diffal.plugin.model.shards import ranks_of
from lightning_diffal.plugin.reliability import write_reliability
from lightning_diffal.plugin.state import RunState
from lightning_diffal.progress import StageTimer


class FeatureGraph:
    """The symmetric graph of the fixed features: built in the first round or read from the run's folder, then kept."""

    def __init__(self) -> None:
        self.features: Tensor | None = None
        self.neighbors: int | None = None
        self.graph: NeighborGraph | None = None

    def of(
        self,
        features: Tensor,
        neighbors: int | None,
        build: Callable[..., NeighborGraph],
        device: torch.device,
        timer: StageTimer,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> NeighborGraph:
        same = self.features is not None and self.neighbors == neighbors and torch.equal(self.features, features)
        if self.graph is None or not same:
            with timer.stage("graph"):
                graph = build(features.to(device), neighbors, backend="exact", progress=timer.track, ranks=ranks)
            self.features, self.neighbors, self.graph = features, neighbors, graph.symmetric
        return self.graph


def choose_diffused(
    trainer: Any, config: RunConfig, state: RunState, graph: FeatureGraph, timer: StageTimer
) -> DiffusedPoints | None:
    """The points of this round that are trained on with diffused labels, by their indices in the dataset.

    All ranks search neighbors, rank 0 chooses and tells the others. The choice depends on nothing but features and
    labels, so that a run that was killed goes on with the same.
    """
    settings = config.learn_from_graph
    if settings is None or state.features is None:
        return None
    device = trainer.strategy.root_device
    neighbors = graph.of(
        state.features, settings.neighbors, state.build_feature_graph, device, timer, ranks_of(trainer)
    )
    labels = state.pool.labels[torch.tensor(state.candidates)]
    num_classes = num_classes_found(labels)

    def choose() -> DiffusedPoints:
        with timer.stage("diffusion"):
            points = settings.choose(neighbors, labels.to(device), num_classes, earlier_predictions(state, device))
        index = torch.tensor(state.candidates)[points.rows.cpu()]
        return replace(
            points,
            rows=index,
            labels=points.labels.cpu(),
            confidence=points.confidence.cpu(),
            expected=points.expected.cpu(),
        )

    return from_rank_zero(trainer, choose)


def check_last_labels(trainer: Any, config: RunConfig, state: RunState, graph: FeatureGraph) -> None:
    """At the end of a run that learned from the graph, write how reliable its labels are."""
    settings, folder = config.learn_from_graph, state.ledger.folder
    if settings is None or state.features is None or folder is None:
        return
    device = trainer.strategy.root_device
    neighbors = graph.of(
        state.features, settings.neighbors, state.build_feature_graph, device, StageTimer(), ranks_of(trainer)
    )
    labels = state.pool.labels[torch.tensor(state.candidates)]

    def check() -> None:
        left_out = settings.leave_one_out(neighbors, labels.to(device), num_classes_found(labels))
        write_reliability(folder, left_out, int((labels != UNLABELED).sum()))

    from_rank_zero(trainer, check)


@dataclass(frozen=True, eq=False)
class PoolLabels:
    """A label for every point of the pool: the known ones, and those that diffuse to the others."""

    indices: Int[Tensor, " n"]
    """Of the dataset."""
    labels: Int[Tensor, " n"]
    """-1 where no label reaches."""
    confidence: Float[Tensor, " n"]
    """The margin of the strongest class, in [0, 1]; 1 where the label is known."""
    expected_accuracy: Float[Tensor, " n"]
    """The probability that the label is right, by leave-one-out accuracy; 1 where it is known."""
    known: Tensor
    """Whether the label was given by the oracle."""


def predict_labels(config: RunConfig, pool: KnownPool, graph: FeatureGraph) -> PoolLabels:
    """The labels of all points, diffused from all labels that are known now; their reliability goes to the folder."""
    settings = config.learn_from_graph or LearnFromGraph()
    device = graph.graph.device if graph.graph is not None else pool.points.device
    neighbors = graph.of(pool.points, settings.neighbors, pool.build_graph, device, StageTimer())
    labels, num_classes = pool.labels.to(device), num_classes_found(pool.labels)
    diffused = settings.graph_labels(neighbors, labels, num_classes)
    left_out = settings.leave_one_out(neighbors, labels, num_classes)
    known = labels != UNLABELED
    write_reliability(pool.folder, left_out, int(known.sum()))
    expected = expected_accuracy(left_out, diffused.confidence)
    expected = torch.where(known, 1.0, torch.where(diffused.labels == UNLABELED, 0.0, expected))
    parts = (diffused.labels, diffused.confidence, expected, known)
    return PoolLabels(torch.tensor(pool.indices), *(part.cpu() for part in parts))


def check_default_features(config: RunConfig, state: RunState) -> None:
    """Refuse to take large inputs for features that the user has not named."""
    if config.learn_from_graph is None or config.features is not None:
        return
    size = numbers_in(config.label_field.remove(state.dataset[state.candidates[0]]))
    if size > MAX_INPUT_SIZE:
        raise MisconfigurationException(
            f"{config.callback}(learn_from_graph=..., features=None): without features the graph is that of the "
            f"inputs, and an item has {size} numbers, more than {MAX_INPUT_SIZE}: neighbors among such inputs are "
            "seldom of one class. features=... takes an encoder, a layer of a pretrained model, an array of one row "
            'for each point, or "inputs" where that is meant.'
        )


def numbers_in(item: Any) -> int:
    """How many numbers the tensors and arrays of an item hold."""
    if isinstance(item, Tensor):
        return item.numel()
    if hasattr(item, "shape"):
        return int(torch.Size(item.shape).numel())
    if isinstance(item, dict):
        return sum(map(numbers_in, item.values()))
    return sum(map(numbers_in, item)) if isinstance(item, (list, tuple)) else 0
