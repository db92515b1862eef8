import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.selectors import BALDSelector, EntropySelector, MarginSelector, UncertaintySelector
from lightning_diffal.selectors.uncertainty import entropy
from tests.selectors.test_contract import ask, snapshot_of, stochastic_of

PROBABILITIES = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.2, 0.2], [1.0, 0.0, 0.0], [0.4, 0.25, 0.35]])
MEASURES = [
    (UncertaintySelector, lambda p: np.sort(p)[:, -1]),
    (MarginSelector, lambda p: np.sort(p)[:, -1] - np.sort(p)[:, -2]),
    (EntropySelector, lambda p: -scipy_entropy(p, axis=1)),
]


def test_the_measures_by_hand():
    assert UncertaintySelector().certainty(PROBABILITIES).tolist() == pytest.approx([0.5, 0.6, 1.0, 0.4])
    assert MarginSelector().certainty(PROBABILITIES).tolist() == pytest.approx([0.0, 0.4, 1.0, 0.05])
    assert entropy(PROBABILITIES).tolist() == pytest.approx([math.log(2), 0.950271, 0.0, 1.080528], abs=1e-6)


def test_a_class_of_probability_zero_adds_no_entropy():
    for dtype in (torch.float32, torch.float64):
        assert entropy(torch.eye(3, dtype=dtype)).abs().tolist() == [0, 0, 0]
        assert not entropy(torch.tensor([[1e-40, 1.0]], dtype=dtype)).isnan().any()


@pytest.mark.parametrize("classes", [2, 63, 64, 200, 3000])  # the last ones in several blocks of the pool
@pytest.mark.parametrize(("selector", "measure"), MEASURES)
def test_scores_are_those_of_numpy_for_few_and_for_many_classes(classes, selector, measure):
    logits = torch.randn(300, classes, generator=torch.Generator().manual_seed(0))
    snapshot = Snapshot(labels=torch.full((300,), UNLABELED), num_classes=classes, logits=logits)
    scores = measure(logits.double().softmax(dim=1).numpy())
    query = selector()(snapshot, 20)
    assert query.scores.tolist() == pytest.approx(scores[query.indices], rel=1e-6, abs=1e-6)
    assert query.scores.tolist() == pytest.approx(np.sort(scores)[:20], rel=1e-6, abs=1e-6)


def test_the_margin_of_one_class_is_its_probability():
    assert MarginSelector().certainty(torch.ones(3, 1)).tolist() == [1, 1, 1]


@pytest.mark.parametrize(("selector", "measure"), MEASURES)
@pytest.mark.parametrize("passes", [None, 5])
def test_the_order_is_that_of_numpy_for_one_pass_and_for_several(selector, measure, passes):
    snapshot, truth = snapshot_of(n=200)
    source = snapshot.probabilities if passes is None else snapshot.stochastic.probabilities
    scores = measure(source.double().numpy())
    expected = [i for i in np.argsort(scores, kind="stable") if snapshot.labels[i] < 0][:30]
    query = ask(selector(passes=passes), snapshot, 30, truth)
    assert query.indices.tolist() == expected
    assert query.scores.tolist() == pytest.approx(scores[expected], abs=1e-6)


def test_dropout_changes_the_choice():
    snapshot, truth = snapshot_of(n=200)
    one, many = (ask(EntropySelector(passes=passes), snapshot, 9, truth).indices for passes in (None, 5))
    assert not torch.equal(one, many)


def test_points_of_equal_score_are_ordered_by_index():
    snapshot, truth = snapshot_of(logits=torch.zeros(60, 3))
    assert ask(EntropySelector(), snapshot, 8, truth).indices.tolist() == snapshot.unlabeled[:8].tolist()


def test_bald_prefers_passes_that_disagree_to_passes_that_are_uncertain():
    agree, uncertain, disagree = [[20.0, 0], [20.0, 0]], [[0, 0], [0, 0]], [[20.0, 0], [0, 20.0]]
    logits = torch.tensor([agree, uncertain, disagree]).transpose(0, 1)  # (passes, n, c)
    snapshot, truth = snapshot_of(n=3, known=0, classes=2, logits=torch.zeros(3, 2), stochastic=stochastic_of(logits))
    query = ask(BALDSelector(passes=2), snapshot, 3, truth)
    assert query.indices[0] == 2
    assert query.scores.tolist() == pytest.approx([-math.log(2), 0, 0], abs=1e-6)
    assert ask(EntropySelector(passes=2), snapshot, 1, truth).indices.tolist() == [1]


def test_bald_is_the_mutual_information_of_label_and_pass():
    logits = torch.randn(7, 40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = {"logits": torch.zeros(40, 4), "stochastic": stochastic_of(logits)}
    snapshot, truth = snapshot_of(n=40, known=0, classes=4, **parts)
    joint = logits.softmax(dim=2) / 7  # of pass and label, for each point
    independent = joint.sum(dim=2, keepdim=True) * joint.sum(dim=0, keepdim=True)
    information = (joint * (joint / independent).log()).sum(dim=(0, 2))
    query = ask(BALDSelector(passes=7), snapshot, 40, truth)
    assert torch.allclose(-query.scores, information[query.indices])
    assert query.indices.tolist() == information.argsort(descending=True).tolist()


@pytest.mark.parametrize("selector", [UncertaintySelector, MarginSelector, EntropySelector, BALDSelector])
def test_a_number_of_passes_below_one_is_refused(selector):
    with pytest.raises(ValueError, match=rf"{selector.__name__}\(passes=0\): a whole number of at least 1"):
        selector(passes=0)
