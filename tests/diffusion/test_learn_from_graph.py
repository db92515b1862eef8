"""How far a graph is believed: calibration against scikit-learn and SciPy, and the rules by hand."""

import graphlearning
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.stats import binomtest, norm
from sklearn.isotonic import IsotonicRegression

from lightning_diffal import LearnFromGraph, build_graph
from lightning_diffal.diffusion.calibration import (
    calibration_error,
    expected_accuracy,
    interpolate,
    isotonic,
    lower_bound,
    reliability_bins,
)
from lightning_diffal.diffusion.graph_against_models import Comparison, ModelPredictions, compare
from lightning_diffal.diffusion.graph_labels import graph_labels
from lightning_diffal.diffusion.leave_one_out import LeaveOneOut
from tests import naive

numbers = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 20)), min_size=1, max_size=12)


@given(pairs=numbers)
def test_isotonic_regression_is_scikit_learns(pairs):
    values, weights = zip(*pairs, strict=True)
    expected = IsotonicRegression().fit_transform(np.arange(len(values)), values, sample_weight=weights)
    np.testing.assert_allclose(isotonic(list(values), list(weights)), expected, atol=1e-12)


@given(pairs=numbers, seed=st.integers(0, 1000))
def test_interpolation_is_numpys(pairs, seed):
    values = [value for value, _ in pairs]
    at = np.cumsum([weight for _, weight in pairs]) / 40
    x = np.random.default_rng(seed).uniform(-1, 7, 20)
    found = interpolate(torch.tensor(x), torch.tensor(at), torch.tensor(values, dtype=torch.float64))
    np.testing.assert_allclose(found.numpy(), np.interp(x, at, values), atol=1e-12)


@given(count=st.integers(1, 300), part=st.floats(0, 1))
def test_the_lower_bound_is_wilsons(count, part):
    correct = round(part * count)
    interval = binomtest(correct, count).proportion_ci(2 * norm.cdf(2) - 1, method="wilson")
    assert lower_bound(correct, count) == pytest.approx(interval.low, abs=1e-12)


def left_out(confidence, correct):
    rows = torch.arange(len(correct))
    correct = torch.as_tensor(correct)
    confidence = torch.as_tensor(confidence, dtype=torch.float64)
    return LeaveOneOut(rows, torch.ones_like(rows), correct.long(), confidence, correct.double())


def test_the_expected_accuracy_is_that_of_the_confidence():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(4000, generator=generator, dtype=torch.float64)
    truth = 0.2 + 0.7 * confidence.square()
    correct = torch.rand(4000, generator=generator) < truth
    expected = expected_accuracy(left_out(confidence[:2000], correct[:2000]), confidence[2000:])
    assert (expected - truth[2000:]).abs().mean() < 0.05
    assert calibration_error(reliability_bins(expected, correct[2000:])) < 0.05
    few = expected_accuracy(left_out(confidence[:15], correct[:15]), confidence)
    assert len(few.unique()) == 1, "fifteen points are one bin"
    assert float(few[0]) == pytest.approx(float(correct[:15].double().mean()))


def test_reliability_bins_by_hand():
    expected = torch.tensor([0.1, 0.15, 0.9, 0.95, 1.0])
    bins = reliability_bins(expected, torch.tensor([False, True, True, True, False]), bins=2)
    assert [(part.count, round(part.expected, 4), round(part.accuracy, 4)) for part in bins] == [
        (2, 0.125, 0.5),
        (3, 0.95, 0.6667),
    ]
    assert calibration_error(bins) == pytest.approx((2 * 0.375 + 3 * (0.95 - 2 / 3)) / 5)


def test_models_that_know_more_than_the_graph_fade_it_out():
    graph_is_right = torch.arange(200) % 2 == 0  # 0.5
    rows = torch.arange(200)

    def fade(model):
        return compare(rows, graph_is_right, torch.ones(200, dtype=torch.long), model).trust(0.1)

    assert fade(ModelPredictions(rows, torch.where(rows % 4 == 0, 1, 0))) == 1.0, "the model 0.25"
    assert fade(ModelPredictions(rows, graph_is_right.long())) == 1.0, "equal"
    assert fade(ModelPredictions(rows, torch.where(rows % 10 < 9, 1, 0))) == 0.0, "the model 0.9"
    late = torch.where(rows < 80, 0, 1)
    assert fade(ModelPredictions(rows, late)) == 0.0, "the last 120 count"
    behind = torch.where(rows % 20 < 13, graph_is_right.long().clamp(min=(rows % 20 < 7).long()), graph_is_right.long())
    lead = (behind.double() - graph_is_right.double())[-120:]
    between = (0.2 - float(lead.mean()) + float(lead.std()) / 120**0.5) / 0.1
    assert fade(ModelPredictions(rows, behind)) == pytest.approx(between), "the model 0.65"
    assert fade(ModelPredictions(rows[:0], rows[:0])) == 1.0


def clusters(noise):
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(600) % 3
    points = torch.randn(600, 5, generator=generator) * noise
    points[:, :3] += 4 * torch.nn.functional.one_hot(truth, 3)
    labels = torch.full((600,), -1)
    labels[:30] = truth[:30]
    return build_graph(points, 8), labels, truth


def test_of_each_class_the_surest_are_learned_from_where_the_graph_fits():
    graph, labels, truth = clusters(1.0)
    found = LearnFromGraph(fraction=0.25).choose(graph, labels, 3)
    assert 2.4 < found.share <= 3.0
    assert LearnFromGraph(share=0.5).choose(graph, labels, 3).share == pytest.approx(found.share / 6)
    assert (found.labels == truth[found.rows]).double().mean() > 0.98
    assert (labels[found.rows] == -1).all()
    diffused = graph_labels(graph, labels, 3, class_balance=0.75)
    sizes = diffused.labels[labels < 0].bincount()
    assert torch.equal(found.labels.bincount(), (sizes * 0.25).ceil().long())
    assert (found.confidence.diff() <= 0).all()
    none = LearnFromGraph().choose(*clusters(40.0)[:2], 3)
    assert len(none.rows) == 0
    assert none.share == 0


def test_with_many_labels_less_is_learned_unless_the_graph_is_ahead():
    graph, _, truth = clusters(1.0)

    def share(count, num_classes=3, model=None):
        labels = torch.where(torch.arange(600) < count, truth, -1)
        return LearnFromGraph().choose(graph, labels, num_classes, model).share

    assert share(300) == pytest.approx(3.0)
    assert share(400) == pytest.approx(3.0 * (300 / 400) ** 2)
    assert share(400, num_classes=12) == pytest.approx(3.0 * (360 / 400) ** 2)
    asked = torch.arange(280, 400)
    as_good = ModelPredictions(asked, truth[asked])
    assert share(400, model=as_good) == pytest.approx(share(400))
    wrong = torch.where(torch.arange(120) < 60, (truth[asked] + 1) % 3, truth[asked])
    assert share(400, model=ModelPredictions(asked, wrong)) == pytest.approx(3.0)


def test_the_graph_is_ahead_by_standard_errors():
    assert Comparison(count=100, models=0.5, lead=0.02, standard_error=0.04).ahead == pytest.approx(0.5)
    assert Comparison(count=100, models=0.5, lead=0.08, standard_error=0.04).ahead == 1.0
    assert Comparison(count=100, models=0.5, lead=-0.02, standard_error=0.04).ahead == 0.0
    assert Comparison(count=100, models=0.5, lead=0.5, standard_error=0.0).ahead == 1.0
    assert Comparison(count=0, models=0.0, lead=0.0, standard_error=0.0).ahead == 0.0


def test_in_many_steps_diffused_labels_are_those_of_graphlearnings_laplace():
    graph, labels, _ = clusters(2.0)
    weight = naive.dense(graph)
    model = graphlearning.ssl.laplace(csr_matrix((weight + weight.T) / 2), tol=1e-12)
    solution = model.fit(np.arange(30), labels[:30].numpy())
    found = graph_labels(graph, labels, 3, steps=3000)
    np.testing.assert_array_equal(found.labels.numpy(), solution.argmax(axis=1))
    top = np.sort(solution / solution.sum(axis=1, keepdims=True), axis=1)
    np.testing.assert_allclose(found.confidence.numpy(), top[:, -1] - top[:, -2], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({"fraction": 2}, "a number from 0 to 1"),
        ({"class_balance": -1}, "a number from 0 to 1"),
        ({"share": -1}, "a number of at least 0"),
        ({"share": float("inf")}, "a number of at least 0"),
        ({"steps": 0}, "a whole number of at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(arguments, needed):
    name, value = next(iter(arguments.items()))
    with pytest.raises(ValueError, match=rf"LearnFromGraph\({name}={value}\): {needed}"):
        LearnFromGraph(**arguments)
