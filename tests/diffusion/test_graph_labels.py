"""Diffused labels against dense matrix powers; leave-one-out against one diffusion for each point left out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_diffal import NeighborGraph, build_graph
from lightning_diffal.diffusion.graph_labels import graph_labels
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from tests import naive
from tests.diffusion.test_diffuse import pool


def dense_masses(graph, labels, num_classes, steps):
    """The mass after so many steps over (W + Wᵀ)/2, as one dense matrix power: labeled rows stay, the others walk."""
    weight = naive.dense(graph)
    weight = (weight + weight.T) / 2
    walk = weight / weight.sum(axis=1, keepdims=True)
    labeled = np.flatnonzero(labels >= 0)
    walk[labeled] = np.eye(len(labels))[labeled]
    start = np.zeros((len(labels), num_classes))
    start[labeled, labels[labeled]] = 1
    return np.linalg.matrix_power(walk, steps) @ start


def expected_margin(mass):
    second, first = np.sort(np.pad(mass, ((0, 0), (1, 0))), axis=1)[:, -2:].T
    total = mass.sum(axis=1)
    return np.divide(first - second, total, out=np.zeros(len(mass)), where=total > 0)


sizes = given(
    n=st.integers(6, 30), k=st.integers(1, 4), c=st.integers(1, 4), known=st.integers(1, 6), steps=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)  # fmt: skip


@sizes
def test_diffused_labels_are_those_of_dense_matrix_powers(n, k, c, known, steps, seed):
    graph, labels = pool(n, k=k, c=c, known=known, seed=seed)
    found, mass = graph_labels(graph, labels, c, steps=steps), dense_masses(graph, labels.numpy(), c, steps)
    np.testing.assert_allclose(found.confidence.numpy(), expected_margin(mass), rtol=0, atol=1e-12)
    reached = mass.sum(axis=1) > 0
    assert (found.labels[~torch.from_numpy(reached)] == -1).all()
    clear = reached & (expected_margin(mass) > 1e-9)
    np.testing.assert_array_equal(found.labels.numpy()[clear], mass.argmax(axis=1)[clear])
    assert torch.equal(found.labels[labels >= 0], labels[labels >= 0])


@sizes
def test_balanced_classes_have_their_mass_divided_by_its_power(n, k, c, known, steps, seed):
    graph, labels = pool(n, k=k, c=c, known=known, seed=seed)
    mass = dense_masses(graph, labels.numpy(), c, steps)
    for power in (0.5, 1.0):
        balanced = mass / np.maximum(mass.sum(axis=0), 1e-300) ** power
        found = graph_labels(graph, labels, c, steps=steps, class_balance=power)
        np.testing.assert_allclose(found.confidence.numpy(), expected_margin(balanced), rtol=0, atol=1e-9)
        clear = expected_margin(balanced) > 1e-9
        np.testing.assert_array_equal(found.labels.numpy()[clear], balanced.argmax(axis=1)[clear])
        left_out = leave_one_out(graph, labels, c, steps=steps, class_balance=power)
        for row, confidence in zip(left_out.rows.tolist(), left_out.confidence.tolist(), strict=True):
            others = labels.numpy().copy()
            others[row] = -1
            alone = dense_masses(graph, others, c, steps)[[row]] / np.maximum(mass.sum(axis=0), 1e-300) ** power
            assert confidence == pytest.approx(expected_margin(alone)[0], abs=1e-9)


def test_labels_at_a_hub_do_not_win_the_points_of_balanced_classes():
    # Two equal clusters, a bridge between them; class 0 has its label at the bridge, where all walks pass.
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(400) % 2
    points = torch.randn(400, 2, generator=generator) + 3.2 * truth[:, None]
    near = (points - 1.3).square().sum(dim=1)
    labels = torch.full((400,), -1)
    labels[torch.where(truth == 0, near, torch.inf).argmin()] = 0
    labels[torch.where(truth == 1, -near, torch.inf).argmin()] = 1
    graph = build_graph(points, 10)
    plain, balanced = (graph_labels(graph, labels, 2, class_balance=power).labels == truth for power in (0.0, 1.0))
    assert plain.double().mean() < 0.83
    assert balanced.double().mean() > plain.double().mean() + 0.05


@sizes
def test_leave_one_out_is_the_diffusion_without_each_label(n, k, c, known, steps, seed):
    graph, labels = pool(n, k=k, c=c, known=known, seed=seed)
    found = leave_one_out(graph, labels, c, steps=steps)
    assert found.rows.tolist() == (labels >= 0).nonzero()[:, 0].tolist()
    columns = (found.rows.tolist(), found.predicted.tolist(), found.confidence.tolist())
    for row, predicted, confidence in zip(*columns, strict=True):
        others = labels.numpy().copy()
        others[row] = -1
        mass = dense_masses(graph, others, c, steps)[[row]]
        assert confidence == pytest.approx(expected_margin(mass)[0], abs=1e-9)
        if mass.sum() == 0:
            assert predicted == -1
        elif expected_margin(mass)[0] > 1e-9:
            assert predicted == mass.argmax()
    assert found.accuracy == pytest.approx(float((found.predicted == labels[found.rows]).double().mean()))


def test_on_a_path_each_label_is_predicted_by_the_nearer_of_the_others():
    # 0 - 1 - 2 - 3 - 4 - 5, labeled 0, 1 and 5; 1 sees label 0 beside it, 5 sees only label 1, from afar.
    crow, col = torch.tensor([0, 1, 3, 5, 7, 9, 10]), torch.tensor([1, 0, 2, 1, 3, 2, 4, 3, 5, 4])
    graph = NeighborGraph(crow, col, torch.ones(10, dtype=torch.float64))
    labels = torch.tensor([0, 1, -1, -1, -1, 1])
    found = leave_one_out(graph, labels, 2, steps=500)
    assert found.predicted.tolist() == [1, 0, 1]
    # Gambler's ruin from 1: 0 is one step away and 5 four, so that the shares are 4/5 and 1/5.
    np.testing.assert_allclose(found.confidence.numpy(), [1, 0.6, 1], atol=1e-9)
    assert found.accuracy == pytest.approx(1 / 3)
    assert leave_one_out(graph, labels, 2, steps=3).predicted.tolist() == [1, 0, -1], "four steps are needed"


def test_the_class_of_a_point_left_out_may_keep_its_size():
    # A star: point 0 sees four others, two of class 0 like itself (1 of 3 is left out), two of class 1.
    crow, col = torch.tensor([0, 4, 5, 6, 7, 8]), torch.tensor([1, 2, 3, 4, 0, 0, 0, 0])
    graph = NeighborGraph(crow, col, torch.tensor([1.0, 1, 1, 2, 1, 1, 1, 2], dtype=torch.float64))
    labels = torch.tensor([0, 0, 0, 1, 1])
    assert leave_one_out(graph, labels, 2, steps=1).predicted[0] == 1, "2 to 3"
    kept = leave_one_out(graph, labels, 2, steps=1, keep_class_size=True)
    assert kept.confidence[0] == pytest.approx((3 - 2 * 1.25) / 5.5)


def test_a_sample_of_the_labeled_points_is_predicted_from_all_labels():
    graph, labels = pool(100, known=40)
    everything, some = leave_one_out(graph, labels, 3), leave_one_out(graph, labels, 3, max_points=20)
    assert len(some.rows) == 20
    place = torch.searchsorted(everything.rows, some.rows)
    assert torch.equal(everything.rows[place], some.rows)
    assert torch.equal(everything.predicted[place], some.predicted)
    torch.testing.assert_close(everything.confidence[place], some.confidence, rtol=0, atol=1e-12)


@pytest.mark.parametrize("power", [-0.1, 1.5, "half", True, float("nan")])
def test_a_class_balance_beyond_0_to_1_is_refused(power):
    graph, labels = pool(20)
    with pytest.raises(ValueError, match=r"graph_labels\(class_balance=.*a number from 0 to 1 is needed"):
        graph_labels(graph, labels, 3, class_balance=power)


def test_without_labels_nothing_is_predicted():
    graph, labels = build_graph(torch.randn(20, 2), 3), torch.full((20,), -1)
    assert graph_labels(graph, labels, 2).confidence.sum() == 0
    found = leave_one_out(graph, labels, 2)
    assert len(found.rows) == 0
    assert found.accuracy == 0.0
    labels[3] = 1  # alone, it is predicted by nobody
    assert leave_one_out(graph, labels, 2).predicted.tolist() == [-1]
