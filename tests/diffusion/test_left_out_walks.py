"""Walks from points left out against one dense matrix power for each of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_diffal import NeighborGraph, build_graph
from lightning_diffal.diffusion import left_out_walks
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.diffusion.left_out_walks import predicted_right
from lightning_diffal.diffusion.sparse_rows import Entries
from tests.diffusion.test_diffuse import pool
from tests.diffusion.test_graph_labels import dense_masses, expected_margin


@given(
    n=st.integers(6, 30), k=st.integers(1, 4), c=st.integers(1, 4), known=st.integers(1, 6), steps=st.integers(1, 12),
    seed=st.integers(0, 2**31), shares=st.sampled_from([None, (0.0,), (1e-4, 0.0), (0.5, 0.1, 0.01, 0.0)]),
    cost=st.sampled_from([1e-9, 1.0, 10.0]),
)  # fmt: skip
def test_a_point_is_predicted_right_if_its_class_has_the_most_mass_without_its_label(
    n, k, c, known, steps, seed, shares, cost
):
    graph, labels = pool(n, k=k, c=c, known=known, seed=seed)
    rows = (labels >= 0).nonzero()[:, 0].flip(0)
    with pytest.MonkeyPatch.context() as patch:
        if shares is not None:  # else all classes are diffused
            patch.setattr(left_out_walks, "FEW_PRODUCTS", 0)
            patch.setattr(left_out_walks, "SPARSE_PRODUCT", cost)
            patch.setattr(left_out_walks, "NEGLIGIBLE", shares)
            patch.setattr(left_out_walks, "WALK_ENTRIES", 50)
        right = predicted_right(graph.symmetric, labels, rows, steps=steps)
    for row, found in zip(rows.tolist(), right.tolist(), strict=True):
        others = labels.numpy().copy()
        others[row] = -1
        mass = dense_masses(graph, others, c, steps)[[row]]
        if mass.sum() == 0:
            assert not found
        elif expected_margin(mass)[0] > 1e-9:
            assert found == (mass.argmax() == labels[row])


@pytest.fixture(params=["diffused", "walks"])
def products(request, monkeypatch):
    if request.param == "walks":
        monkeypatch.setattr(left_out_walks, "FEW_PRODUCTS", 0)
        monkeypatch.setattr(left_out_walks, "SPARSE_PRODUCT", 1e-9)


@pytest.mark.usefixtures("products")
def test_of_equal_classes_the_lowest_is_predicted():
    # A star: its center and two of its four points have class 1, the other two class 0.
    crow, col = torch.tensor([0, 4, 5, 6, 7, 8]), torch.tensor([1, 2, 3, 4, 0, 0, 0, 0])
    graph = NeighborGraph(crow, col, torch.ones(8, dtype=torch.float64))
    labels = torch.tensor([1, 1, 1, 0, 0])
    assert predicted_right(graph, labels, torch.tensor([0]), steps=1).tolist() == [False]
    assert predicted_right(graph, 1 - labels, torch.tensor([0]), steps=1).tolist() == [True]


@pytest.mark.usefixtures("products")
def test_without_labels_nothing_is_predicted():
    graph, labels = build_graph(torch.randn(20, 2), 3).symmetric, torch.full((20,), -1)
    assert len(predicted_right(graph, labels, torch.tensor([], dtype=torch.long))) == 0
    labels[3] = 1  # alone, it is predicted by nobody
    assert predicted_right(graph, labels, torch.tensor([3])).tolist() == [False]


def test_it_agrees_with_leave_one_out_and_looks_at_few_nodes(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (3000,), generator=generator)
    points = 3 * torch.randn(5, 3, generator=generator)[truth] + torch.randn(3000, 3, generator=generator)
    labels = torch.where(torch.rand(3000, generator=generator) < 0.1, truth, -1)
    graph = build_graph(points, 8).symmetric
    expected = leave_one_out(graph, labels, 5, max_points=40)
    entries, times = [], Entries.times

    def counted(*arguments):
        product = times(*arguments)
        entries.append(len(product.col))
        return product

    monkeypatch.setattr(Entries, "times", counted)
    monkeypatch.setattr(left_out_walks, "FEW_PRODUCTS", 0)
    monkeypatch.setattr(left_out_walks, "SPARSE_PRODUCT", 1e-9)
    right = predicted_right(graph, labels, expected.rows)
    assert torch.equal(right, expected.correct)
    assert 0.5 < float(right.double().mean()) < 1
    assert sum(entries) < 0.1 * 40 * 40 * 3000, "of all nodes, for 40 points and 40 steps"


def test_the_reach_of_walks_is_never_below_the_truth():
    graph, labels = pool(40, k=3, c=3, known=10)
    graph = graph.symmetric
    walks = left_out_walks.LeftOutWalks(graph, labels, 9, 1e9)
    for row in (labels >= 0).nonzero()[:, 0].tolist():
        others = labels.clone()
        others[row] = -1
        for steps in range(1, 10):
            truth = dense_masses(graph, others.numpy(), 3, steps).sum(axis=1)
            nodes = (others < 0).nonzero()[:, 0]
            assert (walks.may_find(nodes, steps).numpy() >= truth[nodes] - 1e-12).all()
            assert np.isfinite(truth).all()
