"""Intervals and paired differences, against SciPy."""

from statistics import fmean

import pytest
from scipy import stats

from lightning_diffal.studies.report.statistics import (
    labels_needed,
    mean_interval,
    paired_difference,
    paired_labels,
)

SEEDS = range(5)
HARD = {0: 0.50, 1: 0.61, 2: 0.72, 3: 0.83, 4: 0.94}
"""Seeds that differ far more than selectors do."""
EASIER = {0: 0.521, 1: 0.629, 2: 0.740, 3: 0.851, 4: 0.959}


def test_the_interval_of_a_mean_is_that_of_a_t_test():
    values = [0.71, 0.74, 0.69, 0.78]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    interval = mean_interval(values)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.seeds == 4


def test_differences_are_paired_by_seed_and_not_by_order():
    shuffled = {seed: EASIER[seed] for seed in (3, 0, 4, 2, 1)}
    mine, theirs = [[runs[seed] for seed in SEEDS] for runs in (EASIER, HARD)]
    expected = stats.ttest_rel(mine, theirs).confidence_interval(0.95)
    interval = paired_difference(shuffled, HARD)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.significant
    apart = stats.ttest_ind(mine, theirs).confidence_interval(0.95)
    assert apart.low < 0 < apart.high, "unpaired, nothing could be said"


def test_only_seeds_both_have_are_compared():
    interval = paired_difference(EASIER | {7: 0.0}, {1: HARD[1], 3: HARD[3], 9: 1.0})
    assert interval.seeds == 2
    assert interval.mean == pytest.approx(fmean([EASIER[1] - HARD[1], EASIER[3] - HARD[3]]))
    assert paired_difference({0: 0.5}, {1: 0.5}) is None


def test_one_seed_has_no_interval_and_is_never_significant():
    interval = paired_difference({0: 0.9}, {0: 0.1})
    assert interval.half is None
    assert not interval.significant


def test_labels_are_those_of_the_first_fit_that_comes_to_the_target():
    assert labels_needed([10, 20, 30, 40], [0.5, 0.8, 0.7, 0.9], 0.8) == 20
    assert labels_needed([10, 20], [0.5, 0.6], 0.7) is None


def test_labels_all_runs_need_are_compared_exactly():
    mine, theirs = {0: 20, 1: 30, 2: 25}, {0: 40, 1: 45, 2: 30}
    apart = paired_labels(mine, theirs, beyond=60)
    expected = stats.ttest_rel(list(mine.values()), list(theirs.values())).confidence_interval(0.95)
    assert apart.bound == "exact"
    assert (apart.interval.low, apart.interval.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("true_count", [60, 75, 400])
def test_a_miss_on_one_side_makes_the_mean_a_bound_without_an_interval(true_count):
    misses, reaches = {0: None, 1: 30}, {0: 20, 1: 25}
    true = fmean([true_count - 20, 30 - 25])
    at_least, at_most = paired_labels(misses, reaches, beyond=60), paired_labels(reaches, misses, beyond=60)
    assert (at_least.bound, at_most.bound) == ("at least", "at most")
    assert at_least.interval.mean <= true
    assert at_most.interval.mean >= -true
    assert at_least.interval.half is at_most.interval.half is None
    assert at_least.missed == 1
    assert at_least.pairs == 2


def test_misses_on_both_sides_leave_nothing_to_say():
    apart = paired_labels({0: None, 1: 30, 2: 5}, {0: 20, 1: None, 2: 5}, beyond=60)
    assert apart.interval is None
    assert (apart.missed, apart.pairs) == (2, 3)
    assert paired_labels({0: None}, {0: None}, beyond=60).interval is None
