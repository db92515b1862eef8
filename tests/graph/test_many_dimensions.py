"""Graphs of hundreds of dimensions, where projections and 8-bit products rule points out: exact all the same."""

from functools import partial

import pytest
import torch
from scipy.stats import binom

from lightning_diffal import build_graph
from lightning_diffal.distributed import SINGLE_PROCESS
from lightning_diffal.graph.knn import symmetric_search, torch_search
from lightning_diffal.graph.knn.int8_rows import Int8Rows
from lightning_diffal.graph.knn.int8_search import int8_search, prefers_int8
from lightning_diffal.graph.knn.local_order import local_order
from lightning_diffal.graph.knn.projection import choose_basis
from lightning_diffal.graph.knn.registry import BACKENDS, KnnBackend
from lightning_diffal.graph.knn.torch_search import search_torch
from lightning_diffal.numerics.contraction import contract, leading_directions
from lightning_diffal.numerics.int8 import quantize

K = 7


def pool(kind, n=2_100, d=192):
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(n, d, generator=generator)
    center = torch.randn(9, d, generator=generator)[torch.arange(n) % 9]
    low_rank = torch.randn(n, 8, generator=generator) @ torch.randn(8, d, generator=generator)
    pools = {
        "white noise": noise,
        "low rank": low_rank + 0.01 * noise,
        "copies": noise[torch.randint(n // 3, (n,), generator=generator)],
        "huge offset": low_rank + 1e4,
        "one dominant direction": noise * torch.cat([torch.tensor([300.0]), torch.ones(d - 1)]),
        "sparse and heavy-tailed": (noise.relu() * (torch.rand(n, d, generator=generator) < 0.05)) ** 5,
        "collapsed classes": 10 * center + 1e-3 * noise,
        "one far outlier": torch.cat([noise[:-1], 1e4 * noise[-1:]]),
        "half precision": (low_rank + 0.1 * noise).half(),
        "float64": low_rank.double() + 1e-9 * noise.double(),
        "lattice": noise.round().clamp(-1, 1),
    }
    return pools[kind]


KINDS = [
    *("white noise", "low rank", "copies", "huge offset", "one dominant direction", "sparse and heavy-tailed"),
    *("collapsed classes", "one far outlier", "half precision", "float64", "lattice"),
]


def expected_neighbors(points, rows):
    """By (distance, index) over all points, in float64."""
    x = points.double()
    rho = torch.stack([(x - x[row]).square().sum(dim=1) for row in rows])
    rho[torch.arange(len(rows)), rows] = float("inf")
    return rho.sort(dim=1, stable=True).indices[:, :K].sort(dim=1).values


def check_exact(points, backend):
    rows = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:60]
    graph = build_graph(points, K, backend=backend)
    assert torch.equal(graph.col.view(-1, K)[rows], expected_neighbors(points, rows))
    assert graph.recall is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_hits", [0, float("inf")], ids=["each pair twice", "each pair once"])
def test_what_8_bit_products_leave_holds_every_neighbor(monkeypatch, kind, max_hits):
    monkeypatch.setattr(torch_search, "prefers_int8", lambda points: True)
    # Whatever it costs: each pair once also where nearly all pairs are kept.
    monkeypatch.setattr(symmetric_search, "MAX_HITS", max_hits)
    check_exact(pool(kind), "torch")


@pytest.mark.parametrize("missed", [0.02, 0.98])
def test_points_whose_radius_was_too_small_are_searched_again(monkeypatch, missed):
    monkeypatch.setattr(symmetric_search, "MISSED", missed)
    monkeypatch.setattr(symmetric_search, "MIN_SAMPLE", 256)
    again = []
    search_rows = Int8Rows.__call__
    monkeypatch.setattr(Int8Rows, "__call__", lambda self, rows: again.extend(rows.tolist()) or search_rows(self, rows))
    points = pool("white noise")
    found, spread = symmetric_search.symmetric_search(Int8Rows(points, K + 4, None), iter)
    nearest = torch.cdist(points.double(), points.double()).topk(K + 4, largest=False).indices
    assert torch.equal(found.sort(dim=1).values, nearest.sort(dim=1).values)
    assert ((spread == 0) | spread.isclose(points.norm(dim=1))).all()
    assert len(again) == len(set(again))
    # A radius is too small with the probability `missed` or a little less, where no distance is like another.
    assert 0 < len(again) / len(points) < missed + 0.02


@pytest.mark.parametrize(("count", "fraction"), [(19, 0.1), (19, 0.0625), (5, 0.9), (500, 0.01)])
def test_the_rank_in_the_sample_is_the_first_that_is_seldom_reached(count, fraction):
    number = symmetric_search.rank_in_sample(count, fraction)
    assert binom.sf(number - 1, count, fraction) <= symmetric_search.MISSED or number == count
    assert binom.sf(number - 2, count, fraction) > symmetric_search.MISSED


@pytest.mark.parametrize("kind", KINDS)
def test_what_principal_directions_leave_holds_every_neighbor(monkeypatch, kind):
    # Whatever it costs: also where hardly any point is ruled out.
    projected = partial(search_torch, prune_from=2, prune_up_to=float("inf"), project_above=16)
    monkeypatch.setitem(BACKENDS, "projected", KnnBackend("projected", projected))
    check_exact(pool(kind, n=700), "projected")


def test_more_dimensions_than_points(monkeypatch):
    projected = partial(search_torch, prune_from=2, prune_up_to=float("inf"), project_above=16)
    monkeypatch.setitem(BACKENDS, "projected", KnnBackend("projected", projected))
    check_exact(pool("white noise", n=60, d=300), "projected")
    check_exact(pool("low rank", n=60, d=300), "torch")


@pytest.mark.parametrize("kind", ["white noise", "one dominant direction", "collapsed classes", "one far outlier"])
def test_8_bit_codes_are_no_farther_from_their_points_than_they_say(kind):
    points = pool(kind, n=300).float()
    codes = quantize(points)
    x, restored = points.double(), codes.scale.double()[:, None] * codes.code.double()
    distance, coded = torch.cdist(x, x), torch.cdist(restored, restored)
    # Rotated or not, no coded distance differs from the true one by more than both errors.
    slack = 1e-9 * distance.amax()
    assert ((coded - distance).abs() <= codes.error[:, None] + codes.error + slack).all()
    assert (codes.square.double() <= restored.square().sum(dim=1)).all()
    assert (codes.error <= 0.02 * points.norm(dim=1)).float().mean() > 0.9


def test_contracted_distances_are_never_larger():
    points = pool("low rank", n=400)
    points = points - points.mean(dim=0)
    basis = leading_directions(points, 12, torch.Generator().manual_seed(0))
    torch.testing.assert_close(basis.T @ basis, torch.eye(12, dtype=torch.float64))
    near, true = (torch.cdist(x.double(), x.double()) for x in (contract(points, basis), points))
    assert (near <= true * (1 + 1e-6) + 1e-5).all()
    kept = contract(points, basis).square().sum() / points.square().sum()
    assert (near[0] > 0.98 * true[0]).float().mean() > 0.9, "eight directions hold nearly everything"
    torch.testing.assert_close(float(kept), 1.0)


def test_a_projection_is_chosen_where_it_rules_points_out_and_not_on_white_noise():
    structured, noise = pool("low rank", n=3_000, d=256), pool("white noise", n=3_000, d=256)
    assert choose_basis(structured - structured.mean(dim=0), 20, 0.4, SINGLE_PROCESS) is not None
    assert choose_basis(noise - noise.mean(dim=0), 20, 0.4, SINGLE_PROCESS) is None


def test_few_pairs_of_white_noise_are_left_to_float32(monkeypatch):
    from lightning_diffal.graph.knn import int8_rows as module

    pairs = []
    for name in ("pair_distances", "sampled_products"):
        compute = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, compute=compute: pairs.append(len(given[-1])) or compute(*given)
        )
    points = pool("white noise")
    int8_search(points, torch.arange(256), K + 4, iter)
    assert 256 * (K + 4) <= sum(pairs) < 256 * 200, "of 256 · 2,100"


@pytest.mark.parametrize("clear", [0.0, float("inf")], ids=["by products", "by differences"])
def test_neighbors_by_products_and_by_differences_are_the_same(monkeypatch, clear):
    from lightning_diffal.graph.knn import int8_rows as module

    monkeypatch.setattr(torch_search, "prefers_int8", lambda points: True)
    monkeypatch.setattr(module, "CLEAR", clear)
    for kind in ("white noise", "huge offset", "lattice"):
        check_exact(pool(kind), "torch")


def test_near_points_follow_each_other_in_the_local_order():
    points = pool("collapsed classes")[torch.randperm(2_100, generator=torch.Generator().manual_seed(0))]
    order = local_order(points)
    assert torch.equal(order.sort().values, torch.arange(2_100))
    step = (points[order[1:]] - points[order[:-1]]).norm(dim=1)
    assert (step > 1).float().mean() < 0.4, "0.9 in any other order"


def test_8_bit_products_are_not_used_where_they_could_overflow_or_gain_nothing():
    assert not prefers_int8(torch.zeros(3_000, 20))
    assert not prefers_int8(torch.zeros(100, 512))
    assert not prefers_int8(torch.zeros(1, 1).expand(3_000, 140_000))
    assert not prefers_int8(torch.zeros(3_000, 512, device="meta"))
