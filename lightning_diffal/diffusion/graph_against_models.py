"""Whether the graph or the models of earlier rounds predict better."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# Points asked last that are compared: enough for a standard error of 0.06, and not of old models.
RECENT = 120
# How far the graph may be behind the models there: it is asked where it is unsure, and training corrects some of its
# errors. By trials on spoiled features (docs/design.md), learning from it helps at 0.15 behind and hurts at 0.25.
TOLERATED, FADED = 0.1, 0.2


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
    guess: float
    """The share of their most frequent class."""
    models: float
    """The share that the models predicted right before the points were labeled."""
    lead: float
    """By how much that of the graph is higher."""
    standard_error: float
    """Of the lead."""

    @property
    def trust(self) -> float:
        """1 while the graph predicts these points nearly as well as the models did, 0 where it is far worse.

        The standard error of the difference is granted to the graph, whose predictions are of few points at first.
        """
        return min(1.0, max(0.0, (self.lead + self.standard_error + FADED) / (FADED - TOLERATED)))

    @property
    def model_skill(self) -> float:
        """How much better than guessing the models are: (a - b) / (1 - b), or 0."""
        return skill(self.models, self.guess)


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
        return Comparison(len(asked), 1.0, 0.0, 0.0, 0.0)
    models_right = (predicted == labels[asked]).double()
    better = right[place[asked]].double() - models_right
    error = float(better.std()) / math.sqrt(len(asked))
    guess = float(labels[asked].long().bincount().amax()) / len(asked)
    return Comparison(len(asked), guess, float(models_right.mean()), float(better.mean()), error)


def skill(accuracy: float, guess: float) -> float:
    """(a - b) / (1 - b), or 0: how much better than guessing the most frequent class, of share b, an accuracy is."""
    return max(0.0, (accuracy - guess) / (1 - guess)) if guess < 1 else 0.0
