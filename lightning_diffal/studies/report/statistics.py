"""What may be said of runs that share their seeds: means, intervals, paired differences, labels needed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over seeds, and how far the true mean may be from it."""

    mean: float
    half: float | None
    """Half the width of the 95% Student-t interval; None with one seed, which has none."""
    seeds: int

    @property
    def low(self) -> float:
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half or 0.0)

    @property
    def sure(self) -> bool:
        """Whether zero lies outside."""
        return self.half is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class LabelsApart:
    """How many labels more one selector needs than another, paired by seed."""

    interval: Interval | None
    """None where the runs that miss the target leave nothing to say."""
    bound: str
    """"exact", or "at most" and "at least" where misses on one side make the mean a bound; then it has no interval."""
    missed: int
    """Pairs in which one of the two, or both, never come to the target."""
    pairs: int


def student_t(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t with P(|T| ≤ t) = confidence, to double precision."""
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √ν tan θ): a finite sum for whole ν. Reference: Abramowitz & Stegun, 26.7.3 and 26.7.4."""
    cosine = math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean and mean ± t s / √n."""
    count = len(values)
    half = student_t(count - 1) * stdev(values) / math.sqrt(count) if count > 1 else None
    return Interval(mean=fmean(values), half=half, seeds=count)


def paired_difference(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Mine less theirs over the seeds both have. None where they share no seed."""
    seeds = sorted(mine.keys() & theirs.keys())
    return mean_interval([mine[seed] - theirs[seed] for seed in seeds]) if seeds else None


def area(accuracies: Sequence[float]) -> float:
    """Area under the curve of accuracy against labels, as the mean accuracy over the rounds."""
    return fmean(accuracies)


def labels_needed(labels: Sequence[int], accuracies: Sequence[float], target: float) -> int | None:
    """The labels of the first fit that comes to the target; None if none does."""
    return next((count for count, accuracy in zip(labels, accuracies, strict=True) if accuracy >= target), None)


def paired_labels(mine: Mapping[int, int | None], theirs: Mapping[int, int | None], beyond: int) -> LabelsApart | None:
    """Labels I need less the labels they need, over the seeds both have.

    A run that misses the target would need at least `beyond` labels, one query more than there were. Where only I miss,
    the mean difference so counted is a lower bound; where only they do, an upper one; else there is nothing to say.
    """
    seeds = sorted(mine.keys() & theirs.keys())
    if not seeds:
        return None
    missed_by_me = [seed for seed in seeds if mine[seed] is None]
    missed_by_them = [seed for seed in seeds if theirs[seed] is None]
    missed = len({*missed_by_me, *missed_by_them})
    if missed_by_me and missed_by_them:
        return LabelsApart(interval=None, bound="unknown", missed=missed, pairs=len(seeds))
    differences = [float(counted(mine[seed], beyond) - counted(theirs[seed], beyond)) for seed in seeds]
    if not missed:
        return LabelsApart(interval=mean_interval(differences), bound="exact", missed=0, pairs=len(seeds))
    mean = Interval(mean=fmean(differences), half=None, seeds=len(seeds))
    return LabelsApart(interval=mean, bound="at least" if missed_by_me else "at most", missed=missed, pairs=len(seeds))


def counted(needed: int | None, beyond: int) -> int:
    return beyond if needed is None else needed
