"""Whether the graph or the models of earlier rounds predict better."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# Points asked last that are compared: enough for a standard error of 0.06, and not of old models.
RECENT = 120
# Behind the models by so much more than is tolerated, the graph counts for nothing.
FADED = 0.1


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """What models of earlier rounds said of points before these were labeled, in the order they were asked."""

    rows: Int[Tensor, " q"]
    predicted: Int[Tensor, " q"]


@dataclass(frozen=True)
class Comparison:
    """A graph and the models of earlier rounds, by the points asked last."""

    count: int
    """Of these points."""
    models: float
    """The share that the models predicted right before the points were labeled."""
    lead: float
    """By how much that of the graph is higher."""
    standard_error: float
    """Of the lead."""

    @property
    def ahead(self) -> float:
        """1 where the graph leads by a standard error, 0 where it does not lead."""
        return min(1.0, max(0.0, self.lead) / max(self.standard_error, 1e-9))

    def trust(self, tolerated: float) -> float:
        """1 while the graph is behind the models by less than what is tolerated, 0 where it is by 0.1 more.

        The standard error of the difference is granted to the graph, whose predictions are of few points at first.
        """
        behind = -self.lead - self.standard_error - tolerated
        return min(1.0, max(0.0, 1 - behind / FADED))


def compare(
    rows: Int[Tensor, " s"], right: Bool[Tensor, " s"], labels: Int[Tensor, " n"], model: ModelPredictions
) -> Comparison:
    """Who predicts the points asked last better: the graph from all other labels, or the models that had not seen them.

    What a model says of points it was trained on tells nothing, so only what it said before counts.

    Args:
        rows: Points that the graph predicted as if they had no label.
        right: Whether it was right.
        labels: Class of each node.
    """
    place = torch.full_like(labels, -1, dtype=torch.long)
    place[rows] = torch.arange(len(rows), device=rows.device)
    position = place[model.rows]
    asked, predicted = model.rows[position >= 0][-RECENT:], model.predicted[position >= 0][-RECENT:]
    if len(asked) < 2:
        return Comparison(len(asked), 0.0, 0.0, 0.0)
    models_right = (predicted == labels[asked]).double()
    better = right[place[asked]].double() - models_right
    error = float(better.std()) / math.sqrt(len(asked))
    return Comparison(len(asked), float(models_right.mean()), float(better.mean()), error)


def skill(accuracy: float, guess: float) -> float:
    """(a - b) / (1 - b), or 0: how much better than guessing the most frequent class, of share b, an accuracy is."""
    return max(0.0, (accuracy - guess) / (1 - guess)) if guess < 1 else 0.0
