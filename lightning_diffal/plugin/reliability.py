"""Whether diffused labels are right as often as expected: checked on labeled points, kept for the report of the run."""

import json
from pathlib import Path
from typing import Any, Final

import torch
from jaxtyping import Float
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_diffal.diffusion.calibration import (
    calibration_error,
    expected_accuracy,
    lower_bound,
    reliability_bins,
)
from lightning_diffal.diffusion.leave_one_out import LeaveOneOut
from lightning_diffal.pool.folder.files import make_folder, write_atomically

NAME: Final = "reliability.json"
FOLDS: Final = 5
# Fewer labeled points say nothing about single bins.
MIN_POINTS: Final = 20


def held_out_expectation(left_out: LeaveOneOut) -> Float[Tensor, " s"]:
    """The expected accuracy of each point that was left out, by the others alone.

    Five folds, every fifth point in one: what is expected of a fold is learned from the four others. Else a point would
    vouch for itself.
    """
    expected = torch.zeros_like(left_out.confidence)
    fold = torch.arange(len(left_out.rows), device=expected.device) % FOLDS
    for number in range(FOLDS):
        ours, others = fold == number, fold != number
        parts = (left_out.rows, left_out.labels, left_out.predicted, left_out.confidence, left_out.support)
        expected[ours] = expected_accuracy(LeaveOneOut(*(part[others] for part in parts)), left_out.confidence[ours])
    return expected


def reliability(left_out: LeaveOneOut, labels: int) -> dict[str, Any] | None:
    """What a reliability diagram draws, as JSON; None with fewer than twenty points.

    Args:
        labels: That are known. `left_out` may be a sample of them.
    """
    if len(left_out.rows) < MIN_POINTS:
        return None
    bins = reliability_bins(held_out_expectation(left_out), left_out.correct)
    described = []
    for part in bins:
        right = round(part.accuracy * part.count)
        low, high = lower_bound(right, part.count), 1 - lower_bound(part.count - right, part.count)
        described.append(
            {"count": part.count, "expected": part.expected, "accuracy": part.accuracy, "low": low, "high": high}
        )
    return {
        "labels": labels,
        "points": len(left_out.rows),
        "accuracy": left_out.accuracy,
        "calibration_error": calibration_error(bins),
        "bins": described,
    }


def write_reliability(folder: Path, left_out: LeaveOneOut, labels: int) -> None:
    """`reliability.json` in the folder of a run. Only its report reads it, so a run goes on without it."""
    content = reliability(left_out, labels)
    if content is None:
        return

    def write(path: Path) -> None:
        path.write_text(json.dumps(content), encoding="utf-8")

    try:
        make_folder(folder)
        write_atomically(folder / NAME, write)
    except OSError as error:
        rank_zero_warn(f"{folder / NAME} cannot be written ({error}). The report of the run will not have its figure.")
