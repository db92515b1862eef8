"""Which unlabeled points a network may learn from, with the labels that diffused to them."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, check_share, skip_type_check
from lightning_diffal.diffusion.calibration import expected_accuracy, lower_bound
from lightning_diffal.diffusion.graph_against_models import ModelPredictions, compare, skill
from lightning_diffal.diffusion.graph_labels import STEPS, GraphLabels, graph_labels
from lightning_diffal.diffusion.leave_one_out import LeaveOneOut, leave_one_out
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors
from lightning_diffal.labels import UNLABELED

# How far the graph may be behind the models: it is asked where it is unsure, and training corrects some of its errors.
# By trials on spoiled features (docs/design.md), learning from it helps at 0.15 behind and hurts at 0.25.
TOLERATED = 0.1
# Labels in all, and of each class, up to which a network learns from the graph whether or not the graph is ahead. Where
# the network could know more, three points for each label help up to about here and hurt beyond (docs/design.md).
FEW, FEW_OF_A_CLASS = 300, 30


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
    """How many of them join a batch, for each labeled point in it."""
    leave_one_out: float
    """The accuracy of labels that diffuse to labeled points from the others."""

    def summary(self) -> dict[str, float]:
        """What loggers and the ledger keep: how many, how sure, and how right where it can be checked."""
        count = len(self.rows)
        return {
            "points": float(count),
            "share": self.share,
            "confidence": float(self.confidence.mean()) if count else 0.0,
            "expected_accuracy": float(self.expected.mean()) if count else 0.0,
            "leave_one_out": self.leave_one_out,
        }


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class LearnFromGraph:
    """Train on unlabeled points, too, with the labels that diffuse to them over the graph of the features.

    How far the graph is believed is measured on the m labels there are, each predicted from the others. Where that
    leave-one-out accuracy is not surely better than guessing, nothing is added, and training is what it would be
    without. Else each batch of b labeled points gets up to `share` · b points with diffused labels:

    * p is the lower bound (two standard errors) of the leave-one-out accuracy, p₀ the share of the most frequent class.
      Twice the skill (p - p₀) / (1 - p₀), at most 1, is the part of `share` that is used.
    * It fades to 0 where models of earlier rounds knew more: where they predicted the points asked last, before these
      were labeled, better than the graph does by 0.1 (all of it) to 0.2 (nothing).
    * With more than m₀ labels, 30 of each class or 300 in all, whichever is more, (m₀ / m)² of it is left, unless the
      graph is ahead of these models by a standard error (all of it; in between by less): models that learn from the
      graph stay near its accuracy, also where they would have passed it.

    Args:
        fraction: This share of the points of each class is learned from, the surest first. By class, since the
            surest of all may leave out a class that is harder than the others.
        share: Points with diffused labels for each labeled one of a batch, at most. The number of steps stays, so an
            epoch sees 1 + `share` times as many points, and a batch needs so much more memory.
        class_balance: As of `graph_labels`: 1 for pools in which all classes are equally large. The default ¾ is
            within .01 of it there, and better where they are not (docs/design.md).
        neighbors: K of the graph. By default ⌈2 ln n⌉.
        steps: Of the diffusion.
        weight: For modules whose loss takes a weight for each item of a training batch. True puts it last into items
            that are tuples or lists, and under "weight" into dictionaries and objects; a string is another name for
            it there. It is 1 for labeled points and the probability that the label is right for others, and is there
            in every round, also where nothing is added.
    """

    fraction: float = 0.8
    share: float = 3.0
    class_balance: float = 0.75
    neighbors: int | None = None
    steps: int = STEPS
    weight: bool | str = False

    def __post_init__(self) -> None:
        check_share("LearnFromGraph", "fraction", self.fraction)
        check_share("LearnFromGraph", "class_balance", self.class_balance)
        if isinstance(self.share, bool) or not isinstance(self.share, (int, float)) or not 0 <= self.share < math.inf:
            raise ValueError(f"LearnFromGraph(share={self.share!r:.60}): a number of at least 0 is needed.")
        check_neighbors("LearnFromGraph", self.neighbors)
        check_count("LearnFromGraph", "steps", self.steps)
        if not isinstance(self.weight, (bool, str)) or self.weight == "":
            raise ValueError(f"LearnFromGraph(weight={self.weight!r}): True, False or the name of a key is needed.")

    def choose(
        self,
        graph: NeighborGraph,
        labels: Int[Tensor, " n"],
        num_classes: int,
        model: ModelPredictions | None = None,
    ) -> DiffusedPoints:
        """The points to learn from. Cost: `graph_labels` and `leave_one_out`."""
        left_out = self.leave_one_out(graph, labels, num_classes)
        share = self.share * min(1.0, 2 * sure_skill(left_out))
        ahead = 0.0
        if model is not None:
            comparison = compare(left_out.rows, left_out.correct, labels, model)
            share *= comparison.trust(TOLERATED)
            ahead = comparison.ahead
        few, count = max(FEW, FEW_OF_A_CLASS * num_classes), int((labels != UNLABELED).sum())
        left = (few / max(few, count)) ** 2
        share *= left + (1 - left) * ahead
        diffused = self.graph_labels(graph, labels, num_classes)
        confidence = torch.where((labels == UNLABELED) & (share > 0), diffused.confidence, 0.0)
        rows = surest_of_each_class(confidence.cpu(), diffused.labels.cpu(), self.fraction).to(confidence.device)
        expected = expected_accuracy(left_out, confidence[rows])
        return DiffusedPoints(rows, diffused.labels[rows], confidence[rows], expected, share, left_out.accuracy)

    def graph_labels(self, graph: NeighborGraph, labels: Int[Tensor, " n"], num_classes: int) -> GraphLabels:
        return graph_labels(graph, labels, num_classes, steps=self.steps, class_balance=self.class_balance)

    def leave_one_out(self, graph: NeighborGraph, labels: Int[Tensor, " n"], num_classes: int) -> LeaveOneOut:
        return leave_one_out(
            graph, labels, num_classes, steps=self.steps, class_balance=self.class_balance, keep_class_size=True
        )


@skip_type_check
def as_settings(caller: str, value: object) -> LearnFromGraph | None:
    """The settings in the argument `learn_from_graph` of a callback; None where it is off."""
    if isinstance(value, bool):
        return LearnFromGraph() if value else None
    if not isinstance(value, LearnFromGraph):
        raise ValueError(f"{caller}(learn_from_graph={value!r:.60}): True, False or LearnFromGraph(...) is needed.")
    return value


def sure_skill(left_out: LeaveOneOut) -> float:
    """How much better than guessing the most frequent class the graph surely is."""
    count = len(left_out.rows)
    guessing = int(left_out.labels.bincount().amax()) / count if count else 1.0
    surely = lower_bound(int(left_out.correct.sum()), count)
    return skill(surely, guessing)


def surest_of_each_class(
    confidence: Float[Tensor, " n"], labels: Int[Tensor, " n"], fraction: float
) -> Int[Tensor, " p"]:
    """So many of the points of each class that are not labeled, the surest first; of equals the lower row first."""
    rows = confidence.argsort(descending=True, stable=True)
    rows = rows[confidence[rows] > 0]
    # The place of each point among those of its class, by how sure they are.
    by_class = rows[labels[rows].argsort(stable=True)]
    sizes = labels[rows].bincount()
    place = torch.empty_like(confidence, dtype=torch.long)
    place[by_class] = torch.cat([torch.arange(size) for size in sizes.tolist()]) if len(rows) else rows
    return rows[place[rows] < (fraction * sizes[labels[rows]]).ceil()]
