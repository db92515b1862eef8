"""From the confidence of diffused labels to the probability that they are right, learned by leave-one-out."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lightning_diffal.diffusion.leave_one_out import LeaveOneOut

# Bins of the calibration, and labeled points in one of them at least.
MAX_BINS, MIN_COUNT = 10, 10
# The mean accuracy counts as so many further points in every bin.
SHRINKAGE = 5
# Standard errors below the estimate: a lower bound that holds in 97.7% of cases.
DEVIATIONS = 2.0


def expected_accuracy(left_out: LeaveOneOut, confidence: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """The probability that a diffused label of this confidence is right; it never falls as the confidence rises.

    The points left out are sorted by confidence and cut into up to ten bins of at least ten. The accuracy of a bin,
    shrunk toward that of all, is made monotone by isotonic regression; between the bins' mean confidences it is
    interpolated. Without labeled points it is 0. Where labels were asked because they were hard to predict, it is an
    underestimate.
    """
    size = len(left_out.rows)
    if size == 0:
        return torch.zeros_like(confidence)
    order = left_out.confidence.argsort(stable=True)
    sure, correct = left_out.confidence[order].double().cpu(), left_out.correct[order].double().cpu()
    centers, accuracies, counts = [], [], []
    for rows in torch.arange(size).tensor_split(max(1, min(MAX_BINS, size // MIN_COUNT))):
        count = len(rows)
        centers.append(float(sure[rows].mean()))
        accuracies.append((float(correct[rows].sum()) + SHRINKAGE * left_out.accuracy) / (count + SHRINKAGE))
        counts.append(count)
    fitted = torch.tensor(isotonic(accuracies, counts), dtype=torch.float64)
    return interpolate(confidence.double().cpu(), torch.tensor(centers, dtype=torch.float64), fitted).to(confidence)


def isotonic(values: list[float], weights: list[int]) -> list[float]:
    """The non-decreasing sequence that is nearest to `values` in weighted squares: pool adjacent violators."""
    blocks: list[tuple[float, int, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, mass, length = blocks.pop()
            total = mass + block[1]
            block = ((mean * mass + block[0] * block[1]) / total, total, length + block[2])
        blocks.append(block)
    return [mean for mean, _, length in blocks for _ in range(length)]


def interpolate(x: Float[Tensor, " b"], at: Float[Tensor, " m"], values: Float[Tensor, " m"]) -> Float[Tensor, " b"]:
    """The piecewise linear function through (at, values), constant beyond its ends. `at` does not fall."""
    right = torch.searchsorted(at, x).clamp(max=len(at) - 1)
    left = (right - 1).clamp(min=0)
    width = at[right] - at[left]
    part = torch.where(width > 0, (x - at[left]) / width, 1.0).clamp(0, 1)
    return values[left] + part * (values[right] - values[left])


def lower_bound(correct: int, count: int, deviations: float = DEVIATIONS) -> float:
    """Wilson's lower bound of a probability of which `correct` of `count` trials came true; 0 without trials.

    Reference: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, 1927.
    """
    if count == 0:
        return 0.0
    share, square = correct / count, deviations**2 / count
    spread = math.sqrt(share * (1 - share) * square + square**2 / 4)
    return max(0.0, (share + square / 2 - spread) / (1 + square))


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions whose expected accuracies are close to each other."""

    count: int
    expected: float
    """Their mean expected accuracy."""
    accuracy: float
    """How many of them are right, as a share."""


def reliability_bins(
    expected: Float[Tensor, " b"], correct: Bool[Tensor, " b"], *, bins: int = 10
) -> list[ReliabilityBin]:
    """What a reliability diagram draws: predictions in bins of equal width in [0, 1], empty ones left out."""
    place = (expected * bins).long().clamp(0, bins - 1)
    return [
        ReliabilityBin(int(rows.sum()), float(expected[rows].mean()), float(correct[rows].double().mean()))
        for rows in (place == number for number in range(bins))
        if bool(rows.any())
    ]


def calibration_error(bins: list[ReliabilityBin]) -> float:
    """The expected calibration error: the mean of |accuracy - expected| over all predictions."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.accuracy - part.expected) for part in bins) / total if total else 0.0
