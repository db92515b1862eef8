"""Means over seeds, their intervals, paired differences, and labels needed to reach a target."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student_t

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over seeds and its 95% Student-t interval."""

    mean: float
    half: float | None
    """Half the width of the interval; None with one seed."""
    seeds: int

    @property
    def low(self) -> float:
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half or 0.0)

    @property
    def significant(self) -> bool:
        """Whether zero lies outside the interval."""
        return self.half is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class LabelDifference:
    """How many more labels one selector needs than another, paired by seed."""

    interval: Interval | None
    """None where both selectors have runs that miss the target."""
    bound: str
    """"exact"; "at most" or "at least" where one selector has misses, and the mean is a bound without an interval."""
    missed: int
    """Pairs in which one or both never reach the target."""
    pairs: int


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean and mean ± t s / √n."""
    count = len(values)
    half = (
        float(student_t.ppf((1 + CONFIDENCE) / 2, count - 1)) * stdev(values) / math.sqrt(count) if count > 1 else None
    )
    return Interval(mean=fmean(values), half=half, seeds=count)


def paired_difference(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Mine minus theirs over the shared seeds. None without any."""
    seeds = sorted(mine.keys() & theirs.keys())
    return mean_interval([mine[seed] - theirs[seed] for seed in seeds]) if seeds else None


def labels_needed(labels: Sequence[int], accuracies: Sequence[float], target: float) -> int | None:
    """The labels of the first fit that reaches the target; None if none does."""
    return next((count for count, accuracy in zip(labels, accuracies, strict=True) if accuracy >= target), None)


def paired_labels(
    mine: Mapping[int, int | None], theirs: Mapping[int, int | None], beyond: int
) -> LabelDifference | None:
    """My labels minus their labels, over the shared seeds.

    A run that misses the target would need at least `beyond` labels, one more query. With these in place of the misses,
    the mean difference is a lower bound if only I miss, an upper bound if only they miss, and unknown if both do.
    """
    seeds = sorted(mine.keys() & theirs.keys())
    if not seeds:
        return None
    missed_by_me = [seed for seed in seeds if mine[seed] is None]
    missed_by_them = [seed for seed in seeds if theirs[seed] is None]
    missed = len({*missed_by_me, *missed_by_them})
    if missed_by_me and missed_by_them:
        return LabelDifference(interval=None, bound="unknown", missed=missed, pairs=len(seeds))
    differences = [float(counted(mine[seed], beyond) - counted(theirs[seed], beyond)) for seed in seeds]
    if not missed:
        return LabelDifference(interval=mean_interval(differences), bound="exact", missed=0, pairs=len(seeds))
    mean = Interval(mean=fmean(differences), half=None, seeds=len(seeds))
    return LabelDifference(
        interval=mean, bound="at least" if missed_by_me else "at most", missed=missed, pairs=len(seeds)
    )


def counted(needed: int | None, beyond: int) -> int:
    return beyond if needed is None else needed
