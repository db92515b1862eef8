"""backend="approximate": the recall it says is the recall it has, and the graph depends on nothing but the points."""

import logging

import pytest
import torch

from lightning_diffal import build_graph
from lightning_diffal.graph.knn import approximate_search, registry
from lightning_diffal.graph.knn.registry import resolve_backend

K = 10


def trained_layer(n, d):
    """Ten curved sheets of few dimensions, bent by a ReLU layer."""
    generator = torch.Generator().manual_seed(1)
    center = torch.randn(10, 12, generator=generator)[torch.arange(n) % 10]
    latent = center + 0.4 * torch.randn(n, 12, generator=generator)
    bent = (latent @ torch.randn(12, d, generator=generator)).relu()
    return bent + 0.02 * torch.randn(n, d, generator=generator)


def true_recall(graph, points):
    exact = build_graph(points, K, backend="torch").col.view(-1, K, 1)
    return float((exact == graph.col.view(-1, 1, K)).any(dim=2).float().mean())


@pytest.mark.parametrize(("n", "d"), [(4_000, 200), (4_000, 24)])
def test_the_recall_is_at_least_97_percent_and_as_measured(n, d):
    points = trained_layer(n, d)
    graph = build_graph(points, K, backend="approximate")
    assert graph.recall == pytest.approx(true_recall(graph, points), abs=0.015)
    assert graph.recall >= 0.97
    assert (graph.degree == K).all()
    assert (graph.col.view(-1, K) != torch.arange(n)[:, None]).all(), "no point is its own neighbor"
    assert build_graph(points, K, symmetric=True, backend="approximate").recall == graph.recall
    assert build_graph(points[:500], K).recall is None


def test_the_neighbors_found_have_the_weights_of_the_formula():
    points = trained_layer(2_000, 200)
    graph = build_graph(points, K, backend="approximate")
    rho = (points.double()[graph.source] - points.double()[graph.col]).square().sum(dim=1).view(-1, K)
    torch.testing.assert_close(graph.weight.view(-1, K).double(), (-rho / rho.amax(dim=1, keepdim=True)).exp())


def test_where_too_few_neighbors_are_found_more_is_searched_and_that_is_logged(caplog):
    points = torch.randn(4_000, 40, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.INFO, logger="lightning_diffal"):
        graph = build_graph(points, K, backend="approximate")
    assert "is below 0.97" in caplog.text
    assert f"recall {graph.recall:.4f} on 256 points" in caplog.text
    assert graph.recall >= 0.97
    assert true_recall(graph, points) >= 0.96


def test_the_graph_is_the_same_whatever_the_number_of_threads():
    points, before = trained_layer(3_000, 200), torch.get_num_threads()
    graphs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            graphs.append(build_graph(points, K, backend="approximate"))
    finally:
        torch.set_num_threads(before)
    for graph in graphs[1:]:
        assert torch.equal(graph.col, graphs[0].col)
        assert torch.equal(graph.weight, graphs[0].weight)
        assert graph.recall == graphs[0].recall


@pytest.mark.parametrize("n", [2, 3, 30])
def test_pools_of_a_few_points_and_copies(n):
    points = torch.randn(n, 200, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    graph, exact = (build_graph(points, min(K, n), backend=backend) for backend in ("approximate", "torch"))
    assert torch.equal(graph.col, exact.col)
    assert graph.recall == 1.0


def test_auto_is_approximate_in_very_large_pools_of_many_dimensions_only():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    chosen = {
        ("auto", cpu, 440_000, 512): "torch",
        ("auto", cpu, 445_000, 512): "approximate",
        ("exact", cpu, 445_000, 512): "torch",
        ("auto", cpu, 1_000_000, 160): "torch",
        ("auto", cpu, 1_000_000, 161): "approximate",
        ("approximate", cpu, 10, 2): "approximate",
    }
    for (backend, *pool), name in chosen.items():
        assert resolve_backend(backend, K, *pool).name == name
    assert resolve_backend("auto", K, cuda, 1_000_000, 512).exact


def test_auto_says_so_where_it_is_approximate_and_exact_is_one_argument_away(monkeypatch, caplog):
    monkeypatch.setattr(registry, "APPROXIMATE_WORK", 1e9)
    points = trained_layer(4_000, 200)
    with caplog.at_level(logging.INFO, logger="lightning_diffal"):
        graph = build_graph(points, K)
    assert "backend=\"auto\" is 'approximate' for 4000 points in 200 dimensions" in caplog.text
    assert 'backend="exact" misses none' in caplog.text
    assert torch.equal(graph.col, build_graph(points, K, backend="approximate").col)
    exact = build_graph(points, K, backend="exact")
    assert exact.recall is None
    assert torch.equal(exact.col, build_graph(points, K, backend="torch").col)


def test_a_large_pool_without_structure_is_searched_exactly(monkeypatch, caplog):
    monkeypatch.setattr(approximate_search, "EXACT_FROM", 2_000)
    points = torch.randn(4_000, 200, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.INFO, logger="lightning_diffal"):
        graph = build_graph(points, K, backend="approximate")
    assert "the exact search is faster" in caplog.text
    assert graph.recall == 1.0 == true_recall(graph, points)


def test_directions_that_lose_neighbors_are_not_searched_in():
    # Which of the 40 points of a cluster are the nearest is decided in all 400 directions.
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(75, 400, generator=generator).repeat_interleave(40, 0)
    points = center + 0.3 * torch.randn(3_000, 400, generator=generator)
    graph = build_graph(points, K, backend="approximate")
    assert graph.recall >= 0.97
    assert true_recall(graph, points) >= 0.96


def test_the_sample_is_no_better_than_other_points(monkeypatch):
    # Few cells, so that many neighbors are missed, and many points, so that centers start from many of them.
    monkeypatch.setattr(approximate_search, "MIN_RECALL", 0.0)
    monkeypatch.setattr(approximate_search, "POINTS_SEARCHED", 100)
    monkeypatch.setattr(approximate_search, "SAMPLE", 140)
    points = torch.randn(20_000, 8, generator=torch.Generator().manual_seed(0))
    graph = build_graph(points, K, backend="approximate")
    true = true_recall(graph, points)
    assert true < 0.9
    assert graph.recall == pytest.approx(true, abs=0.08), "with the seed of the cells it was too high by 0.28"
