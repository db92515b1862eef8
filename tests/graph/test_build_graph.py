"""The graph against a kd-tree and the formula of its weights, and the refusal of bad arguments."""

import logging
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tomllib
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from lightning_diffal import NeighborGraph, build_graph
from lightning_diffal.graph.knn.nearest_neighbors import default_neighbors
from lightning_diffal.graph.knn.registry import BACKENDS, resolve_backend
from lightning_diffal.graph.row_block import RowBlock
from tests.graph.pruned import register_pruned
from tests.naive import dense, weights

NAMES = ["torch", "cluster", "faiss"]
CPU = torch.device("cpu")


def rows(graph, k):
    return graph.col.view(-1, k), graph.weight.view(-1, k)


def exhaustive_search(points, k):
    """Neighbors by (distance, index) over all pairs, in float64."""
    x = points.double()
    rho = (x[:, None] - x[None]).square().sum(-1)
    rho.fill_diagonal_(math.inf)
    order = rho.sort(dim=1, stable=True)
    return order.indices[:, :k], order.values[:, :k]


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize(("n", "d", "k"), [(400, 1, 3), (500, 3, 7), (300, 20, 10), (50, 4, 49)])
def test_neighbors_match_a_kd_tree(backend, n, d, k):
    points = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    graph = build_graph(points, k, backend=backend)
    _, expected = cKDTree(points.double().numpy()).query(points.double().numpy(), k + 1)
    col, _ = rows(graph, k)
    for i in range(n):
        assert set(col[i].tolist()) == set(expected[i].tolist()) - {i}


@pytest.mark.parametrize("backend", NAMES)
def test_weights_are_those_of_the_formula(backend):
    points = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = build_graph(points, 6, backend=backend)
    np.testing.assert_allclose(dense(graph), weights(points, 6), rtol=1e-12)
    torch.testing.assert_close(graph.influence, torch.from_numpy(weights(points, 6).sum(axis=1)))
    assert graph.weight.dtype == graph.influence.dtype == torch.float64


@pytest.mark.parametrize("backend", NAMES)
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
    expected, rho = exhaustive_search(points, 8)
    assert torch.equal(col, expected.sort(dim=1).values), "ties go to the lower index"
    coinciding = rho[:, -1] == 0
    assert coinciding.any() == (copies > 8)
    assert (weight[coinciding] == 1).all()


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


@pytest.mark.parametrize("backend", [*NAMES, "pruned"])
@given(points=pools(), data=st.data())
def test_every_backend_finds_the_neighbors_of_an_exhaustive_search(backend, points, data):
    k = data.draw(st.integers(1, len(points) - 1))
    with pytest.MonkeyPatch.context() as patch:
        register_pruned(patch)
        graph = build_graph(points, k, backend=backend)
    expected, rho = exhaustive_search(points, k)
    col, weight = rows(graph, k)
    assert torch.equal(col, expected.sort(dim=1).values)
    scale = rho.amax(dim=1, keepdim=True)
    formula = torch.where(scale > 0, (-rho / scale).exp(), 1.0).gather(1, expected.argsort(dim=1))
    torch.testing.assert_close(weight.double(), formula, rtol=1e-6, atol=0)


@pytest.mark.parametrize("backend", ["torch", "pruned"])
def test_a_large_offset_changes_neither_neighbors_nor_weights(monkeypatch, backend):
    register_pruned(monkeypatch)
    # Multiples of 1/8 are exact beside 2**20, so the shifted pool has exactly the same differences.
    points = torch.randint(-80, 80, (600, 6), generator=torch.Generator().manual_seed(0)) / 8.0
    graph, shifted = (build_graph(points + offset, 10, backend=backend) for offset in (0, 2.0**20))
    assert torch.equal(graph.col, shifted.col)
    assert torch.equal(graph.weight, shifted.weight)


@pytest.mark.parametrize("structure", ["sheets", "collapsed", "none"])
def test_neighbors_in_a_large_pool_match_a_kd_tree(structure):
    generator = torch.Generator().manual_seed(1)
    n = 12_500  # large enough for the pruned search
    center = 100 * torch.randn(10, 8, generator=generator)
    points = torch.randn(n, 8, generator=generator)
    if structure == "sheets":
        points = center[torch.arange(n) % 10] + points * 0.5 ** torch.arange(8)
    elif structure == "collapsed":  # the spread of a class is lost in float32 beside its distance from the origin
        points = center[torch.arange(n) % 10] + 1e-3 * points
    graph = build_graph(points, 12, backend="torch")
    col, _ = rows(graph, 12)
    sample = torch.randperm(n, generator=generator)[:400]
    _, expected = cKDTree(points.double().numpy()).query(points[sample].double().numpy(), 13)
    for i, found in zip(sample.tolist(), expected.tolist(), strict=True):
        assert set(col[i].tolist()) == set(found) - {i}


def test_a_few_uncertain_rows_are_settled_by_more_candidates_and_not_by_all_differences(caplog):
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1_000, 8, generator=generator)
    # Six points as far from the first as each other, but for what float32 products cannot tell.
    points[0], points[1:7] = 5.0, 5.0
    points[torch.arange(1, 7), torch.arange(1, 7)] += 0.01 * (1 + 1e-6 * torch.arange(6))
    with caplog.at_level(logging.DEBUG, logger="lightning_diffal"):
        col, _ = rows(build_graph(points, 2, backend="torch"), 2)
    assert "0 of 1000 points searched by all differences" in caplog.text
    assert torch.equal(col, exhaustive_search(points, 2)[0].sort(dim=1).values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_graph_of_the_same_points_in_float64(dtype):
    points = torch.randn(300, 10, generator=torch.Generator().manual_seed(0)).to(dtype)
    graph = build_graph(points, 5)
    assert graph.weight.dtype == torch.float32
    np.testing.assert_allclose(dense(graph), weights(points.double(), 5), rtol=1e-6)


def test_neither_autocast_nor_a_low_matmul_precision_changes_the_graph():
    points = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            graph = build_graph(points, 10)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    np.testing.assert_allclose(dense(graph), weights(points, 10), rtol=1e-6)


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
    points = torch.randn(12_500, 4, requires_grad=True)
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


def test_the_default_number_of_neighbors_is_twice_the_logarithm():
    assert [default_neighbors(n) for n in (2, 3, 100, 10_000, 50_000)] == [1, 2, 10, 19, 22]
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
def test_bad_arguments_are_refused_by_name(embeddings, options, message):
    # Past the type checker that runs under pytest only: users have none.
    with pytest.raises(ValueError, match=message):
        build_graph(embeddings, **options)


def test_an_unknown_backend_is_refused():
    with pytest.raises(
        ValueError,
        match=r'backend=.annoy.\): "auto", "exact" or one of "torch", "cluster", "faiss", "approximate" is needed',
    ):
        build_graph(torch.zeros(4, 3), 2, backend="annoy")


def test_every_backend_that_needs_a_package_has_a_pip_extra_of_its_name():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for backend in BACKENDS.values():
        assert (backend.name in project["optional-dependencies"]) == (backend.module is not None)


def test_the_message_of_a_missing_extra_names_the_command_that_installs_it():
    script = """
import sys, torch
missing = set()
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
original = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in missing else original(name, *rest)
from lightning_diffal import build_graph
for backend, module in (("cluster", "torch_cluster"), ("faiss", "faiss")):
    missing.clear()
    missing.add(module)
    assert build_graph(torch.randn(50, 3), 4).num_nodes == 50   # "auto" ignores it
    try:
        build_graph(torch.randn(50, 3), 4, backend=backend)
    except ModuleNotFoundError as error:
        print(str(error).replace("\\n", " "))
"""
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    messages = output.splitlines()
    for message, (backend, module) in zip(messages, [("cluster", "torch_cluster"), ("faiss", "faiss")], strict=True):
        assert f"{module} is not installed" in message
        assert f"pip install lightning-diffal[{backend}]" in message
        assert ("--no-build-isolation" in message) == (backend == "cluster")


def test_auto_ignores_a_torch_cluster_that_cannot_be_imported(monkeypatch, tmp_path):
    (tmp_path / "torch_cluster.py").write_text('raise OSError("undefined symbol")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_cluster", raising=False)
    assert resolve_backend("auto", 7, CPU, 50, 3).name == "torch"
    points = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(dense(build_graph(points, 4)), weights(points, 4), rtol=1e-6)


def test_the_cluster_backend_is_refused_beyond_the_limit_of_its_cuda_kernel():
    cuda = torch.device("cuda")
    with pytest.raises(ValueError, match=r"neighbors=97.*at most 96 neighbors on CUDA"):
        resolve_backend("cluster", 97, cuda, 500, 8)
    assert resolve_backend("auto", 97, cuda, 500, 8).name == "torch"
    assert resolve_backend("auto", 96, cuda, 500, 8).name == "cluster"
    assert resolve_backend("cluster", 96, cuda, 500, 8).name == "cluster"


def test_an_incomplete_result_of_torch_cluster_is_never_used(monkeypatch, caplog):
    import torch_cluster

    complete = torch_cluster.knn
    monkeypatch.setattr(torch_cluster, "knn", lambda *arguments, **options: complete(*arguments, **options)[:, :-1])
    points = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(
        RuntimeError, match=r"torch-cluster returned \d+9 edges where \d+0 were asked for .* 30 points\)"
    ):
        build_graph(points, 4, backend="cluster")
    graph = build_graph(points, 4)
    assert "It is used instead" in caplog.text
    np.testing.assert_allclose(dense(graph), weights(points, 4), rtol=1e-6)


@pytest.mark.parametrize(("d", "backend"), [(3, "cluster"), (20, "torch")])
def test_auto_logs_the_backend_and_the_reason(caplog, d, backend):
    with caplog.at_level(logging.DEBUG, logger="lightning_diffal"):
        build_graph(torch.randn(50, d), 4)
    assert f"backend '{backend}' for d={d} on cpu: {'a kd-tree' if d == 3 else 'the fastest'}" in caplog.text


def test_a_progress_bar_can_wrap_the_search():
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


def test_incoming_edges_are_those_of_the_transposed_matrix():
    graph = build_graph(torch.randn(90, 3, generator=torch.Generator().manual_seed(0)), 4)
    matrix = dense(graph)
    for nodes in ([5], [7, 80, 3], [], list(range(90))):
        expected = [i for j in nodes for i in np.flatnonzero(matrix[:, j])]
        assert graph.predecessors(torch.tensor(nodes, dtype=torch.long)).tolist() == expected


def test_a_row_block_multiplies_the_first_rows_of_each_step():
    graph = build_graph(torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), 4, symmetric=True)
    matrix = dense(graph) / dense(graph).sum(axis=1, keepdims=True)
    values = torch.randn(60, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = torch.tensor([9, 40, 2, 17, 33])
    block = RowBlock(graph, rows, [0, 2, 5])
    for step, count in enumerate([0, 2, 5]):
        np.testing.assert_allclose(block.times(values, step), matrix[rows[:count]] @ values.numpy(), rtol=1e-6)
