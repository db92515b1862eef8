"""Graphs built by real processes together: every rank has the graph of a single process, bit by bit."""

from functools import cache

import pytest
import torch

from lightning_diffal import build_graph
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.torch_search import search_torch
from tests.graph.pruned import register_pruned
from tests.process_group import ProcessGroup


@pytest.fixture(scope="module", params=[2, 3, 4])
def group(request):
    # Before the fork: the ranks find these graphs computed.
    for backend in EVERY_BACKEND:
        for symmetric in (False, True):
            graphs_of_one_process(backend, symmetric)
    graph_of_a_large_pool()
    group = ProcessGroup(request.param)
    yield group
    group.stop()


def pools():
    """Name, points and neighbors of pools that take every path through the search."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    coinciding = randn(150, 4)
    coinciding[20:90] = coinciding[7]  # far more than neighbors, and rows of several ranks
    yield "normal", randn(203, 8), 6
    yield "float64", randn(101, 3).double(), 5
    yield "float16", randn(120, 5).half(), 4
    yield "coinciding points", coinciding, 5
    yield "one point", torch.zeros(31, 2), 3
    yield "lattice", torch.cartesian_prod(*[torch.arange(6.0)] * 3), 7
    yield "two clusters far apart", torch.cat([randn(60, 3), randn(41, 3) + 1e4]), 4
    yield "fewer points than ranks", randn(3, 2), 1
    yield "few points", randn(5, 2), 2


def equal(graph, expected):
    return all(torch.equal(getattr(graph, part), getattr(expected, part)) for part in ("crow", "col", "weight"))


EVERY_BACKEND = ["auto", "torch", "cluster", "faiss", "pruned", "approximate"]


@cache
def graphs_of_one_process(backend, symmetric):
    with pytest.MonkeyPatch.context() as patch:
        register_pruned(patch)
        return [build_graph(points, k, backend=backend, symmetric=symmetric) for _, points, k in pools()]


def check_graphs(ranks, backend, symmetric):
    with pytest.MonkeyPatch.context() as patch:
        register_pruned(patch)
        for (name, points, k), expected in zip(pools(), graphs_of_one_process(backend, symmetric), strict=True):
            assert len(expected.crow) == len(points) + 1
            assert equal(build_graph(points, k, backend=backend, symmetric=symmetric, ranks=ranks), expected), name


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("backend", EVERY_BACKEND)
def test_every_rank_has_the_graph_of_a_single_process_bit_by_bit(group, backend, symmetric):
    group(check_graphs, backend, symmetric)


def large_pool():
    return torch.randn(13_000, 4, generator=torch.Generator().manual_seed(1))


@cache
def graph_of_a_large_pool():
    return build_graph(large_pool(), 6)


def check_a_large_pool(ranks):
    return equal(build_graph(large_pool(), 6, backend="torch", ranks=ranks), graph_of_a_large_pool())


def test_every_rank_has_the_same_graph_of_a_pool_large_enough_for_the_pruned_search(group):
    assert all(group(check_a_large_pool))


def rows_searched(ranks, n):
    return search_torch(large_pool()[:n], 5, iter, ranks).rows.tolist()


@pytest.mark.parametrize("n", [2, 900, 13_000])
def test_the_search_is_shared_out_evenly_and_every_row_searched_once(group, n):
    shares = group(rows_searched, n)
    assert sorted(row for share in shares for row in share) == list(range(n))
    assert max(map(len, shares)) <= n / group.world + 130


def check_collectives(ranks):
    mine = torch.arange(3.0) + 10 * ranks.rank
    assert ranks.all_gather(mine).tolist() == [[10.0 * r, 10.0 * r + 1, 10.0 * r + 2] for r in range(ranks.world)]
    assert ranks.all_gather_int(ranks.rank + 5) == [r + 5 for r in range(ranks.world)]
    assert ranks.sum(ranks.rank) == sum(range(ranks.world))
    ragged = torch.full((ranks.rank, 2), ranks.rank)  # rank 0 has none
    assert ranks.all_gather_cat(ragged).tolist() == [[r, r] for r in range(ranks.world) for _ in range(r)]
    assert ranks.all_gather_cat(ragged[:0]).shape == (0, 2)
    assert ranks.broadcast(mine).tolist() == [0.0, 1.0, 2.0]
    assert mine[0] == 10 * ranks.rank, "the argument is not modified"


def test_collectives_return_the_values_of_all_ranks_in_order(group):
    group(check_collectives)


def refusals(ranks):
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    one_bit = points.clone()
    one_bit.view(torch.int32)[11, 2] ^= ranks.rank & 1
    messages = []
    for change in (
        {"points": one_bit},
        {"points": points[: 40 - ranks.rank]},
        {"k": 4 + ranks.rank},
        {"symmetric": ranks.rank > 0},
    ):
        options = {"points": points, "k": 4, "symmetric": False} | change
        with pytest.raises(
            ValueError, match=r"build_graph\(ranks=...\): rank 1 was given embeddings of shape"
        ) as error:
            build_graph(options["points"], options["k"], symmetric=options["symmetric"], ranks=ranks)
        messages.append(str(error.value))
    return messages


def test_arguments_that_differ_in_one_bit_are_refused_on_all_ranks_with_the_same_message(group):
    messages = group(refusals)
    assert all(one == messages[0] for one in messages)
    assert "(39, 3), neighbors=4" in messages[0][1]
    assert "neighbors=5" in messages[0][2]
    assert "symmetric=1" in messages[0][3]


def incomplete_on_the_last(ranks):
    import torch_cluster

    points, complete = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch_cluster.knn
    expected = build_graph(points, 4, backend="torch")
    with pytest.MonkeyPatch.context() as patch:
        if ranks.rank == ranks.world - 1:
            patch.setattr(torch_cluster, "knn", lambda *arguments, **options: complete(*arguments, **options)[:, :-1])
        assert equal(build_graph(points, 4, ranks=ranks), expected)
        with pytest.raises(RuntimeError, match="returned"):
            build_graph(points, 4, backend="cluster", ranks=ranks)


def test_a_result_that_is_incomplete_on_one_rank_is_used_on_none(group):
    group(incomplete_on_the_last)


def test_impossible_ranks_are_refused():
    assert Ranks.of_group() == SINGLE_PROCESS
    assert SINGLE_PROCESS.single
    with pytest.raises(ValueError, match=r"Ranks\(rank=2, world=2\): a rank in \[0, 2\)"):
        Ranks(2, 2)
    with pytest.raises(ValueError, match=r"Ranks\(world=2\): torch.distributed.init_process_group must have been"):
        Ranks(0, 2)
    with pytest.raises(ValueError, match=r"world=0.*at least 1"):
        Ranks(0, 0)
