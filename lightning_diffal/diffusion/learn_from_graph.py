"""Which unlabeled points a network may learn from, with the labels that diffused to them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.diffusion.calibration import expected_accuracy, lower_bound
from lightning_diffal.diffusion.graph_labels import STEPS, graph_labels
from lightning_diffal.diffusion.leave_one_out import LeaveOneOut, leave_one_out
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors
from lightning_diffal.labels import UNLABELED


@dataclass(frozen=True, eq=False)
class DiffusedPoints:
    """Unlabeled points to learn from, the surest first."""

    rows: Int[Tensor, " p"]
    labels: Int[Tensor, " p"]
    """The class that diffused to each."""
    confidence: Float[Tensor, " p"]
    expected: Float[Tensor, " p"]
    """The probability that the label is right."""
    share: float
    """How many of them join a batch, for each labeled point in it: 0 to 1."""
    leave_one_out: float
    """The accuracy of labels that diffuse to labeled points from the others."""

    def summary(self) -> dict[str, float]:
        """What loggers and the ledger keep: how many, how sure, and how right where it can be checked."""
        count = len(self.rows)
        return {
            "points": count,
            "share": self.share,
            "confidence": float(self.confidence.mean()) if count else 0.0,
            "expected_accuracy": float(self.expected.mean()) if count else 0.0,
            "leave_one_out": self.leave_one_out,
        }


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class LearnFromGraph:
    """Train on unlabeled points, too, with the labels that diffuse to them over the graph of the features.

    How far the graph is believed is measured on the labels there are, each predicted from the others. Of that
    leave-one-out accuracy a lower bound p (two standard errors) is compared with p₀, that of always guessing the most
    frequent class: (p - p₀) / (1 - p₀) is the skill of the graph, and twice the skill, at most 1, the number of points
    with diffused labels for each labeled point of a batch. Features that do not fit the labels have no skill: then
    nothing is added, and training is what it would be without.

    Args:
        fraction: At most this share of the pool is learned from, the surest points first.
        min_accuracy: Only points whose label is right with at least this probability, by leave-one-out accuracy at
            the same confidence.
        neighbors: K of the graph. By default ⌈2 ln n⌉.
        steps: Of the diffusion.
    """

    fraction: float = 0.5
    min_accuracy: float = 0.5
    neighbors: int | None = None
    steps: int = STEPS

    def __post_init__(self) -> None:
        for name in ("fraction", "min_accuracy"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise ValueError(f"LearnFromGraph({name}={value!r}): a number from 0 to 1 is needed.")
        check_neighbors("LearnFromGraph", self.neighbors)
        check_count("LearnFromGraph", "steps", self.steps)

    def choose(self, graph: NeighborGraph, labels: Int[Tensor, " n"], num_classes: int) -> DiffusedPoints:
        """The points to learn from. Cost: `graph_labels` and `leave_one_out`."""
        left_out = leave_one_out(graph, labels, num_classes, steps=self.steps)
        share = min(1.0, 2 * skill(left_out))
        diffused = graph_labels(graph, labels, num_classes, steps=self.steps)
        confidence = torch.where(labels == UNLABELED, diffused.confidence, 0.0)
        # Sorted on the CPU, where equal ones keep their order: a graph has the same answer on every device.
        rows = confidence.cpu().argsort(descending=True, stable=True)[: int(self.fraction * len(labels))]
        rows = rows.to(confidence.device)
        expected = expected_accuracy(left_out, confidence[rows])
        rows = rows[(confidence[rows] > 0) & (expected >= self.min_accuracy) & (share > 0)]
        return DiffusedPoints(
            rows, diffused.labels[rows], confidence[rows], expected[: len(rows)], share, left_out.accuracy
        )


def skill(left_out: LeaveOneOut) -> float:
    """(p - p₀) / (1 - p₀), or 0: how much better than the most frequent class the graph surely is."""
    count = len(left_out.rows)
    if count == 0:
        return 0.0
    guessing = int(left_out.labels.bincount().amax()) / count
    surely = lower_bound(int(left_out.correct.sum()), count)
    return max(0.0, (surely - guessing) / (1 - guessing)) if guessing < 1 else 0.0
