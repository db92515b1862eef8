"""Renumbering the nodes, against SciPy's graph algorithms."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components, shortest_path

from lightning_diffal import build_graph
from lightning_diffal.graph.reorder import breadth_first, components, locality_order, renumbered
from tests.naive import dense


def clouds(count, n=240, seed=0):
    """The graph of `count` clouds, far from each other."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, 3, generator=generator)
    points[:, 0] += 100 * (torch.arange(n) % count)
    return build_graph(points, 5, symmetric=True)


@pytest.mark.parametrize("count", [1, 2, 30])
def test_components_equal_scipys(count):
    graph = clouds(count)
    _, theirs = connected_components(dense(graph))
    lowest = [int(np.flatnonzero(theirs == component)[0]) for component in theirs]
    assert components(graph).tolist() == lowest
    _, component = locality_order(graph)
    assert len(component.unique()) == len(set(zip(component.tolist(), theirs.tolist(), strict=True)))
    assert len(component.unique()) == theirs.max() + 1 >= count


def test_breadth_first_order_is_ascending_by_distance_from_the_root():
    graph = clouds(1)
    order = breadth_first(graph, torch.tensor([7]))
    steps = shortest_path(dense(graph), unweighted=True, indices=7)
    reached = np.isfinite(steps)
    assert sorted(order.tolist()) == np.flatnonzero(reached).tolist()
    assert (np.diff(steps[order]) >= 0).all()


@pytest.mark.parametrize("count", [1, 2, 30])
def test_renumbering_keeps_the_graph_and_brings_neighbors_closer_in_memory(count):
    graph = clouds(count)
    order, _ = locality_order(graph)
    assert sorted(order.tolist()) == list(range(240))
    again = renumbered(graph, order)
    assert (dense(again) == dense(graph)[order][:, order]).all()
    apart, before = ((one.source - one.col).abs().double().mean() for one in (again, graph))
    assert apart < before / 1.5
