"""Rows shared out among real processes: together they have the graph of one, bit by bit, and none has more."""

import pytest
import torch

from lightning_diffal import NeighborGraph, build_graph
from lightning_diffal.distributed import Ranks
from lightning_diffal.graph.knn import brute_force as exact
from lightning_diffal.graph.reading import Reading
from lightning_diffal.graph.row_partition import Share
from tests.together import Together


@pytest.fixture(scope="module", params=[2, 3])
def together(request):
    group = Together(request.param)
    yield group
    group.stop()


def pools():
    """Name, points and neighbors of pools that take every path through the search."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    copies = randn(150, 4)
    copies[20:90] = copies[7]  # far more than neighbors, and of several ranks
    yield "normal", randn(203, 8), 6
    yield "doubles", randn(101, 3).double(), 5
    yield "copies", copies, 5
    yield "one point", torch.zeros(31, 2), 3
    yield "lattice", torch.cartesian_prod(*[torch.arange(6.0)] * 3), 7
    yield "two far parts", torch.cat([randn(60, 3), randn(41, 3) + 1e4]), 4
    yield "fewer points than ranks", randn(3, 2), 1
    yield "few points", randn(5, 2), 2


def equal(graph, whole):
    """Whether the rows of a rank are those of one process."""
    share = graph.share
    rows = slice(int(whole.crow[share.first]), int(whole.crow[share.stop]))
    return (
        len(graph.crow) == len(share) + 1
        and torch.equal(graph.crow, whole.crow[share.first : share.stop + 1] - whole.crow[share.first])
        and torch.equal(graph.col, whole.col[rows])
        and torch.equal(graph.weight, whole.weight[rows])
        and torch.equal(graph.influence, whole.influence[share.first : share.stop])
    )


def check_graphs(ranks, cells):
    with pytest.MonkeyPatch.context() as patch:
        if cells:
            patch.setattr(exact, "CELLS_FROM", 2)
            patch.setattr(exact, "CELLS_UP_TO", 1)
            patch.setattr("lightning_diffal.graph.cells.SHORT_RUN", 3)
            patch.setattr("lightning_diffal.graph.cells.ENOUGH_CELLS", cells)
        for number, (name, points, k) in enumerate(pools()):
            backends = ["torch"] if cells or number not in (0, 2, 6) else ["auto", "torch", "cluster", "faiss"]
            for backend, symmetric in [*((one, False) for one in backends), ("torch", True)]:
                # In small pieces too; more of them cost a thousand collectives and show nothing else.
                ranks.piece_bytes = 2**26 if number % 2 else 5000
                options = {"backend": backend, "symmetric": symmetric}
                whole, mine = build_graph(points, k, **options), build_graph(points, k, ranks=ranks, **options)
                assert equal(mine, whole), (name, options)
            gathered = mine.gathered()
            assert torch.equal(gathered.crow, whole.crow)
            assert torch.equal(gathered.col, whole.col)
            assert torch.equal(gathered.weight, whole.weight)


@pytest.mark.parametrize("cells", [0, 1, 64])
def test_together_they_have_the_graph_of_one_process_bit_by_bit(together, cells):
    together(check_graphs, cells)


def rows_and_bytes(ranks):
    points = torch.randn(13_000, 4, generator=torch.Generator().manual_seed(1))
    graph = build_graph(points, 6, backend="torch", ranks=ranks)
    return len(graph.col), ranks.sent, ranks.calls, equal(graph, build_graph(points, 6, backend="torch"))


def test_a_rank_has_its_share_of_the_edges_and_sends_what_the_docstring_says(together):
    n, k, world = 13_000, 6, len(together.pipes)
    answers = together(rows_and_bytes)
    assert sum(edges for edges, *_ in answers) == n * k
    for edges, sent, calls, same in answers:
        assert same
        assert edges <= -(-n // world) * k
        cells, home = 8 * n * (world - 1) / world, 8 * (2 * k + 1) * n / world
        centers, agreements = (world - 1) * 4 * 4 * int(n**0.5), (world - 1) * 1000
        assert sent <= 1.1 * (cells + home) + centers + agreements
        assert calls < 20


def check_reading(ranks):
    generator = torch.Generator().manual_seed(ranks.rank)
    for n in (1, 2, 5, 24):
        share, values = Share(ranks, n), torch.arange(3 * n).view(n, 3) + 0.5
        assert sum(ranks.tell(len(share))) == n
        wanted = torch.randperm(n, generator=generator)[: n // 2 + ranks.rank].sort().values
        since = torch.randint(3, wanted.shape, generator=generator)
        reading = Reading(share, wanted, since, steps=3)
        for step in range(3):
            needed = since <= step
            assert torch.equal(reading(share.of(values), step)[needed], values[wanted][needed])
        assert torch.equal(Reading(share, wanted)(share.of(values)), values[wanted])


def test_rows_of_others_are_read_as_they_are(together):
    together(check_reading)


def check_merge(ranks):
    ranks.piece_bytes = 4000
    generator = torch.Generator().manual_seed(7)
    for n in (2, 50, 60_000):
        share, keys = Share(ranks, n), torch.randint(5, (n,), generator=generator).double()
        keys[::7] = float("inf")
        for count in (1, 4, 60):
            mine = share.of(keys).argsort(stable=True)[:count]
            lowest, indices, total = share.lowest(share.of(keys)[mine], mine, count, note=ranks.rank)
            expected = keys.argsort(stable=True)[:count]
            assert torch.equal(indices, expected)
            assert torch.equal(lowest, keys[expected])
            assert total == sum(range(ranks.world))
        named = (share.of(keys) == 2).nonzero()[:, 0]
        heard = list(share.each(named))
        assert torch.equal(torch.cat([named[:0], *heard]).sort().values, (keys == 2).nonzero()[:, 0])
        assert list(share.each(named[:0])) == []


def test_the_lowest_of_all_and_the_names_of_all_are_those_of_one_list(together):
    together(check_merge)


def refusals(ranks):
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    said = []
    for change in ({"points": points + ranks.rank}, {"points": points[: 40 - ranks.rank]}, {"k": 4 + ranks.rank}):
        with pytest.raises(
            ValueError, match=r"build_graph\(ranks=...\): rank 1 was given embeddings of shape"
        ) as error:
            build_graph(change.get("points", points), change.get("k", 4), ranks=ranks)
        said.append(str(error.value))
    return said


def test_ranks_that_were_given_different_things_all_refuse_in_the_same_words(together):
    answers = together(refusals)
    assert all(said == answers[0] for said in answers)
    assert "(39, 3), neighbors=4" in answers[0][1]
    assert "neighbors=5" in answers[0][2]


def thin_on_the_last(ranks):
    import torch_cluster

    points, whole = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch_cluster.knn
    expected = build_graph(points, 4, backend="torch")
    with pytest.MonkeyPatch.context() as patch:
        if ranks.rank == ranks.world - 1:
            patch.setattr(torch_cluster, "knn", lambda *arguments, **options: whole(*arguments, **options)[:, :-1])
        assert equal(build_graph(points, 4, ranks=ranks), expected)
        with pytest.raises(RuntimeError, match="returned"):
            build_graph(points, 4, backend="cluster", ranks=ranks)


def test_a_thin_answer_on_one_rank_is_taken_on_none(together):
    together(thin_on_the_last)


def test_ranks_are_checked():
    assert Ranks.of_group().alone
    with pytest.raises(ValueError, match=r"Ranks\(rank=2, world=2\): a rank in \[0, 2\)"):
        Ranks(2, 2)
    with pytest.raises(ValueError, match=r"Ranks\(world=2\): torch.distributed.init_process_group must have been"):
        Ranks(0, 2)
    with pytest.raises(ValueError, match=r"world=0.*at least 1"):
        Ranks(0, 0)


def check_graph_by_hand(ranks):
    crow, col, weight = torch.arange(2), torch.zeros(1, dtype=torch.long), torch.ones(1)
    with pytest.raises(ValueError, match=r"rank \d owns \d of 8 rows, crow has 1"):
        NeighborGraph(crow, col, weight, Share(ranks, 8))


def test_a_graph_made_by_hand_must_have_the_rows_of_its_rank(together):
    together(check_graph_by_hand)
