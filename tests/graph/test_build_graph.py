"""The graph against a kd-tree, the formula, and every way of being asked for something impossible."""

import logging
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from lightning_diffal import NeighborGraph, build_graph
from lightning_diffal.graph.knn import brute_force as exact
from lightning_diffal.graph.knn import cluster, search
from tests.naive import dense, weights

BACKENDS = ["torch", "cluster", "faiss"]


def rows(graph, k):
    return graph.col.view(-1, k), graph.weight.view(-1, k)


def by_all_differences(points, k):
    """Neighbors by (distance, index) over all pairs, in float64."""
    x = points.double()
    rho = (x[:, None] - x[None]).square().sum(-1)
    rho.fill_diagonal_(math.inf)
    order = rho.sort(dim=1, stable=True)
    return order.indices[:, :k], order.values[:, :k]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("n", "d", "k"), [(400, 1, 3), (500, 3, 7), (300, 20, 10), (50, 4, 49)])
def test_neighbors_match_a_kd_tree(backend, n, d, k):
    points = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    graph = build_graph(points, k, backend=backend)
    _, expected = cKDTree(points.double().numpy()).query(points.double().numpy(), k + 1)
    col, _ = rows(graph, k)
    for i in range(n):
        assert set(col[i].tolist()) == set(expected[i].tolist()) - {i}


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_are_those_of_the_formula(backend):
    points = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = build_graph(points, 6, backend=backend)
    np.testing.assert_allclose(dense(graph), weights(points, 6), rtol=1e-12)
    torch.testing.assert_close(graph.influence, torch.from_numpy(weights(points, 6).sum(axis=1)))
    assert graph.weight.dtype == graph.influence.dtype == torch.float64


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copies", [3, 12, 400])
def test_coinciding_points_are_never_their_own_neighbor(backend, copies):
    generator = torch.Generator().manual_seed(copies)
    points = torch.cat([torch.zeros(copies, 4), torch.randn(100, 4, generator=generator), torch.ones(copies, 4)])
    points = points[torch.randperm(len(points), generator=generator)]
    graph = build_graph(points, 8, backend=backend)
    col, weight = rows(graph, 8)
    assert (col != torch.arange(len(points))[:, None]).all()
    assert (col.diff(dim=1) > 0).all(), "columns ascend, so no neighbor comes twice"
    assert weight.isfinite().all()
    expected, rho = by_all_differences(points, 8)
    assert torch.equal(col, expected.sort(dim=1).values), "ties go to the lower index"
    same_place = rho[:, -1] == 0
    assert same_place.any() == (copies > 8)
    assert (weight[same_place] == 1).all()


def test_a_pool_of_one_repeated_point():
    graph = build_graph(torch.full((50, 3), 7.0), 4)
    col, weight = rows(graph, 4)
    assert col[0].tolist() == [1, 2, 3, 4]
    assert col[2].tolist() == [0, 1, 3, 4]
    assert col[49].tolist() == [0, 1, 2, 3]
    assert (weight == 1).all()


@st.composite
def pools(draw):
    """Pools with structure that breaks searches: lattices, copies, clusters far out, extreme norms."""
    n, d = draw(st.integers(3, 40)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    kind = draw(st.sampled_from(["normal", "lattice", "copies", "far clusters", "mixed norms"]))
    points = torch.randn(n, d, generator=generator)
    if kind == "lattice":
        points = points.round()
    elif kind == "copies":
        points = points[torch.randint(max(1, n // 4), (n,), generator=generator)]
    elif kind == "far clusters":
        points = points + 1e4 * torch.randint(-1, 2, (n, 1), generator=generator)
    elif kind == "mixed norms":
        points = points * 10.0 ** torch.randint(-3, 4, (n, 1), generator=generator)
    return (points * 10.0 ** draw(st.sampled_from([-40, -20, 0, 0, 0, 15, 37]))).clamp(-3e38, 3e38)


@pytest.mark.parametrize("always_cells", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@given(points=pools(), data=st.data())
def test_every_backend_finds_what_all_differences_find(always_cells, backend, points, data):
    k = data.draw(st.integers(1, len(points) - 1))
    with pytest.MonkeyPatch.context() as patch:
        if always_cells and backend == "torch":
            patch.setattr(exact, "CELLS_FROM", 2)
            patch.setattr(exact, "CELLS_UP_TO", 1)
        graph = build_graph(points, k, backend=backend)
    expected, rho = by_all_differences(points, k)
    col, weight = rows(graph, k)
    assert torch.equal(col, expected.sort(dim=1).values)
    scale = rho.amax(dim=1, keepdim=True)
    formula = torch.where(scale > 0, (-rho / scale).exp(), 1.0).gather(1, expected.argsort(dim=1))
    torch.testing.assert_close(weight.double(), formula, rtol=1e-6, atol=0)


@pytest.mark.parametrize("always_cells", [False, True])
def test_a_large_offset_does_not_spoil_neighbors_or_weights(monkeypatch, always_cells):
    if always_cells:
        monkeypatch.setattr(exact, "CELLS_FROM", 2)
    # Multiples of 1/8 are exact beside 2**20, so the shifted pool has exactly the same differences.
    points = torch.randint(-80, 80, (600, 6), generator=torch.Generator().manual_seed(0)) / 8.0
    here, there = (build_graph(points + shift, 10, backend="torch") for shift in (0, 2.0**20))
    assert torch.equal(here.col, there.col)
    assert torch.equal(here.weight, there.weight)


@pytest.mark.parametrize("structure", ["sheets", "collapsed", "none"])
def test_a_pool_large_enough_for_cells_gives_the_same_graph(structure):
    generator = torch.Generator().manual_seed(1)
    n = exact.CELLS_FROM + 500
    center = 100 * torch.randn(10, 8, generator=generator)
    points = torch.randn(n, 8, generator=generator)
    if structure == "sheets":
        points = center[torch.arange(n) % 10] + points * 0.5 ** torch.arange(8)
    elif structure == "collapsed":  # the spread of a class is lost in float32 beside its distance from the origin
        points = center[torch.arange(n) % 10] + 1e-3 * points
    graph = build_graph(points, 12, backend="torch")
    col, _ = rows(graph, 12)
    some = torch.randperm(n, generator=generator)[:400]
    _, expected = cKDTree(points.double().numpy()).query(points[some].double().numpy(), 13)
    for i, found in zip(some.tolist(), expected.tolist(), strict=True):
        assert set(col[i].tolist()) == set(found) - {i}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_searched_in_float32(dtype):
    points = torch.randn(300, 10, generator=torch.Generator().manual_seed(0)).to(dtype)
    graph, expected = build_graph(points, 5), build_graph(points.float(), 5)
    assert graph.weight.dtype == torch.float32
    assert torch.equal(graph.col, expected.col)
    assert torch.equal(graph.weight, expected.weight)


def test_neither_autocast_nor_a_low_matmul_precision_changes_the_graph():
    points = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    expected = build_graph(points, 10)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            graph = build_graph(points, 10)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(graph.col, expected.col)
    assert torch.equal(graph.weight, expected.weight)


def test_symmetric_takes_the_mean_of_both_directions():
    points = torch.randn(120, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    one_way, both = dense(build_graph(points, 4)), dense(build_graph(points, 4, symmetric=True))
    np.testing.assert_allclose(both, (one_way + one_way.T) / 2, rtol=1e-14)
    assert (one_way != one_way.T).any()


def test_renumbering_the_points_renumbers_the_graph():
    points = torch.randn(150, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(5))
    matrix, permuted = dense(build_graph(points, 6)), dense(build_graph(points[order], 6))
    np.testing.assert_array_equal(permuted, matrix[order][:, order])


def test_the_global_generator_and_the_input_are_untouched():
    points = torch.randn(exact.CELLS_FROM, 4, requires_grad=True)
    before, state = points.detach().clone(), torch.get_rng_state()
    graph = build_graph(points, 5, backend="torch")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(points.detach(), before)
    assert not graph.weight.requires_grad


def test_memory_grows_with_edges_and_not_with_the_square_of_the_pool():
    # 40,000² float32 distances would be 6 GiB; the docstring promises 300 MiB and 60 (k + 5) + 20 d bytes a point.
    script = """
import torch
from pathlib import Path
from lightning_diffal import build_graph
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
points = torch.randn(40_000, 16)
build_graph(points[:500], 10)
held = peak()
build_graph(points, 10, backend="torch")
print(peak() - held)
"""
    used = float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
    assert used < 300 + 40_000 * (60 * 15 + 20 * 16) / 2**20


def test_neighbors_by_default():
    assert [search.default_neighbors(n) for n in (2, 3, 100, 10_000, 50_000)] == [1, 2, 10, 19, 22]
    points = torch.randn(100, 2)
    assert (build_graph(points, None).degree == 10).all()


NAN_AT_3_AND_7 = torch.zeros(10, 2)
NAN_AT_3_AND_7[3, 0] = math.nan
NAN_AT_3_AND_7[7, 1] = math.inf


@pytest.mark.parametrize(
    ("embeddings", "options", "message"),
    [
        (NAN_AT_3_AND_7, {"neighbors": 2}, r"embeddings.*2 of 10 rows hold NaN or infinity, the first is row 3"),
        (torch.zeros(4), {"neighbors": 2}, r"embeddings.*shape \(n, d\).*\(4,\)"),
        (torch.zeros(4, 3, 2), {"neighbors": 2}, r"embeddings.*\(4, 3, 2\).*flatten"),
        (torch.zeros(0, 3), {"neighbors": 2}, r"embeddings.*empty"),
        (torch.zeros(4, 0), {"neighbors": 2}, r"embeddings.*\(4, 0\)"),
        (torch.zeros(4, 3, dtype=torch.long), {"neighbors": 2}, r"embeddings.*floating-point.*int64"),
        ([[1.0]], {"neighbors": 1}, r"embeddings.*floating-point.*list"),
        (torch.zeros(4, 3), {"neighbors": 4}, r"neighbors=4.*pool of 4 points has at most 3"),
        (torch.zeros(4, 3), {"neighbors": 9}, r"neighbors=9.*at most 3"),
        (torch.zeros(1, 3), {"neighbors": 1}, r"neighbors=1.*pool of 1 points has at most 0"),
        (torch.zeros(1, 3), {"neighbors": None}, r"neighbors=1.*pool of 1 points has at most 0"),
        (torch.zeros(4, 3), {"neighbors": 0}, r"neighbors=0.*at least 1"),
        (torch.zeros(4, 3), {"neighbors": -2}, r"neighbors=-2.*at least 1"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(embeddings, options, message):
    # Past the type checker that runs under pytest only: users have none.
    with pytest.raises(ValueError, match=message):
        build_graph(embeddings, **options)


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match=r'backend=.annoy.*"torch"'):
        search.choose_backend(torch.zeros(4, 3), 2, "annoy")


@pytest.mark.parametrize(("backend", "module"), [("cluster", "torch_cluster"), ("faiss", "faiss")])
def test_a_missing_extra_says_what_to_install(backend, module):
    script = f"""
import sys, torch
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
original = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else original(name, *rest)
from lightning_diffal import build_graph
assert build_graph(torch.randn(50, 3), 4).num_nodes == 50   # "auto" does without
try:
    build_graph(torch.randn(50, 3), 4, backend={backend!r})
except ModuleNotFoundError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert f"{module} is not installed" in said
    assert f"pip install lightning-diffal[{backend}]" in said
    assert ("--no-build-isolation" in said) == (backend == "cluster")


def test_a_torch_cluster_that_cannot_be_imported_is_passed_over(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_cluster", None)  # `import torch_cluster` now raises
    monkeypatch.setattr(search, "find_spec", lambda name: object())
    assert search.choose_backend(torch.zeros(50, 3), 7, "auto") == "torch"


def test_the_cluster_backend_is_refused_beyond_the_limit_of_its_cuda_kernel():
    class OnCuda:
        shape, device = (1000, 8), torch.device("cuda")

    with pytest.raises(ValueError, match=r"neighbors=97.*at most 96 neighbors on CUDA"):
        search.choose_backend(OnCuda(), 101, "cluster")
    assert search.choose_backend(OnCuda(), 101, "auto") == "torch"
    assert search.choose_backend(OnCuda(), 100, "auto") == "cluster"
    assert search.choose_backend(OnCuda(), 100, "cluster") == "cluster"


def test_a_thin_answer_of_torch_cluster_is_never_taken(monkeypatch, caplog):
    import torch_cluster

    whole = torch_cluster.knn
    monkeypatch.setattr(torch_cluster, "knn", lambda *arguments, **options: whole(*arguments, **options)[:, :-1])
    with pytest.raises(RuntimeError, match=r"returned 139 edges where 140 were asked for \(7 for each of 20 points\)"):
        cluster.search_cluster(torch.randn(20, 3), torch.arange(20), 7)
    points = torch.randn(30, 3)
    with pytest.raises(RuntimeError, match=f"where {30 * (4 + 1 + search.SPARE)} were asked"):
        build_graph(points, 4, backend="cluster")
    instead = build_graph(points, 4)
    assert "It is used instead" in caplog.text
    assert torch.equal(instead.col, build_graph(points, 4, backend="torch").col)


@pytest.mark.parametrize(("d", "backend"), [(3, "cluster"), (20, "torch")])
def test_auto_says_what_it_picked_and_why(caplog, d, backend):
    with caplog.at_level(logging.DEBUG, logger="lightning_diffal"):
        build_graph(torch.randn(50, d), 4)
    assert f"backend '{backend}' for n=50, d={d} on cpu: {'a kd-tree' if d == 3 else 'the fastest'}" in caplog.text


def test_a_bar_can_be_drawn_over_the_rows():
    seen = []

    def progress(blocks):
        for block in blocks:
            seen.append((block, len(blocks)))
            yield block

    graph = build_graph(torch.randn(3000, 4), 5, backend="torch", progress=progress)
    assert graph.num_nodes == 3000
    assert len(seen) > 1
    assert len(seen) == seen[0][1]


@pytest.mark.parametrize(
    ("crow", "col", "weight", "message"),
    [
        ([0, 1, 2], [1, 0], [1.0], r"crow \(3,\), col \(2,\), weight \(1,\)"),
        ([0, 1, 3], [1, 0], [1.0, 1.0], "crow must rise from 0"),
        ([0, 2, 1, 2], [1, 0], [1.0, 1.0], "crow must rise from 0"),
        ([0, 1, 2], [1, 2], [1.0, 1.0], r"in \[0, 2\)"),
        ([0, 1, 2], [1, 0], [1.0, 0.0], "positive"),
        ([0, 1, 2], [1, 0], [1.0, math.nan], "positive"),
    ],
)
def test_a_graph_made_by_hand_is_checked(crow, col, weight, message):
    with pytest.raises(ValueError, match=message):
        NeighborGraph(torch.tensor(crow), torch.tensor(col), torch.tensor(weight))
