"""Whether the graph or the models of earlier rounds predict better."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_diffal.diffusion.leave_one_out import LeaveOneOut

# Points asked last that are compared: enough for a standard error of 0.06, and not of old models.
RECENT = 120


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


def compare(left_out: LeaveOneOut, model: ModelPredictions) -> Comparison:
    """Who predicts the points asked last better: the graph from all other labels, or the models that had not seen them.

    What a model says of points it was trained on tells nothing, so only what it said before counts.
    """
    place = torch.full((int(left_out.rows.max()) + 1,), -1, device=left_out.rows.device).scatter(
        0, left_out.rows, torch.arange(len(left_out.rows), device=left_out.rows.device)
    )
    rows, predicted = model.rows[model.rows < len(place)], model.predicted[model.rows < len(place)]
    position = place[rows]
    position, predicted = position[position >= 0][-RECENT:], predicted[position >= 0][-RECENT:]
    if len(position) < 2:
        return Comparison(len(position), 0.0, 0.0, 0.0)
    right = (predicted == left_out.labels[position]).double()
    better = left_out.correct[position].double() - right
    error = float(better.std()) / math.sqrt(len(position))
    return Comparison(len(position), float(right.mean()), float(better.mean()), error)
