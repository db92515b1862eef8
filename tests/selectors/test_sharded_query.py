"""Rows shared out among real processes: every rank makes the choice of one process, and holds and sends its share."""

import pytest
import torch

from lightning_diffal import (
    DiffusionSelector,
    DirichletSelector,
    EntropySelector,
    LocalMaxSelector,
    NeighborGraph,
    PoissonSelector,
    Snapshot,
    batch_query,
    build_graph,
    diffuse,
)
from lightning_diffal.diffusion.scores import KeptStates
from lightning_diffal.diffusion.walk import Walk
from lightning_diffal.graph.row_partition import Share
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import choose
from tests.together import Together


@pytest.fixture(scope="module", params=[2, 4])
def together(request):
    group = Together(request.param)
    yield group
    group.stop()


def pool(n, d=3, k=5, c=3, known=6, seed=0, parts=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, d, generator=generator, dtype=dtype)
    points += 1000 * (torch.arange(n) % parts)[:, None]
    truth = torch.randint(c, (n,), generator=generator)
    labels = torch.full((n,), -1)
    some = torch.randperm(n, generator=generator)[:known]
    labels[some] = truth[some]
    soft = torch.rand(n, c, generator=generator).softmax(dim=1)
    return points, k, c, labels, truth, soft


def copies(n):
    points, *rest = pool(n)
    points[n // 4 : n // 2] = points[0]
    return points, *rest


def cases():
    """Name, pool, whether the graph is symmetric, and options of the query."""
    yield "explore", pool(300, known=4), False, {"size": 21, "mini_batch": 7, "steps": 2}
    yield "explore, then refine", pool(203, known=9), False, {"size": 49, "mini_batch": 7, "steps": 3}
    yield "one by one", pool(150, known=20), False, {"size": 9, "steps": 3}
    yield "shrinking", pool(301, known=12), False, {"size": 42, "mini_batch": 7, "steps": 4, "shrink_below": 0.3}
    yield "shrinking at once", pool(150, known=20), True, {"size": 20, "mini_batch": 7, "steps": 3, "shrink_below": 1.0}
    yield "soft", pool(150, known=5), False, {"size": 20, "mini_batch": 7, "steps": 3, "soft": True}
    yield "steps by themselves", pool(200), True, {"size": 28, "mini_batch": 7}
    yield "one step", pool(101, known=40), False, {"size": 20, "mini_batch": 3, "steps": 1}
    yield "own guesses", pool(150, known=20), False, {"size": 21, "mini_batch": 7, "steps": 3, "guess": True}
    yield "recomputed", pool(150, known=20), False, {"size": 20, "mini_batch": 7, "steps": 3, "state_bytes": 1}
    yield (
        "recomputed guesses",
        pool(101, known=20),
        False,
        {"size": 14, "mini_batch": 7, "steps": 2, "state_bytes": 6000, "guess": True},
    )
    yield "no labels", pool(120, known=0), False, {"size": 20, "mini_batch": 7, "steps": 2}
    yield "coinciding points", copies(120), False, {"size": 28, "mini_batch": 7, "steps": 3}
    yield "parts", pool(150, parts=3, known=2), False, {"size": 28, "mini_batch": 7, "steps": 4}
    yield "doubles", pool(90, known=10, dtype=torch.float64), False, {"size": 20, "mini_batch": 7, "steps": 2}
    yield "all that are left", pool(31, known=20), False, {"size": 50, "mini_batch": 4, "steps": 2}
    yield "fewer points than ranks", pool(3, k=1, known=1), False, {"size": 2, "steps": 2}
    yield "few points", pool(5, k=2, known=1), True, {"size": 9, "mini_batch": 7, "steps": 3}


def check_queries(ranks):
    for number, (name, (points, k, c, labels, truth, soft), symmetric, given) in enumerate(cases()):
        if ranks.world == 4 and number % 3 and number < 16:
            continue  # four on two cores are slow
        # Two ranks exchange in small pieces what four exchange at once, and the other way around.
        ranks.piece_bytes = 6000 if (number + ranks.world // 2) % 2 else 2**26
        options, asked = dict(given), []

        def answer(indices, asked=asked, truth=truth):
            asked.append(indices.tolist())
            return truth[indices]

        options["soft_labels"] = soft if options.pop("soft", False) else None
        options["answer"] = None if options.pop("guess", False) else answer
        whole, mine = (build_graph(points, k, symmetric=symmetric, ranks=of) for of in (type(ranks)(), ranks))
        share, steps = mine.share, options.get("steps") or 3
        chi, part = (diffuse(g, labels, c, steps=steps, soft_labels=options["soft_labels"]) for g in (whole, mine))
        assert torch.equal(part, share.of(chi)), name
        expected, questions = batch_query(whole, labels, c, **options), len(asked)
        found = batch_query(mine, labels, c, **options)
        assert torch.equal(found.indices, expected.indices), name
        assert torch.equal(found.scores, expected.scores), name
        assert torch.equal(found.reached, expected.reached), name
        assert found.unreached == expected.unreached, name
        assert asked[questions:] == asked[:questions], name
    calls = ranks.calls
    assert ranks.tell(calls) == [calls] * ranks.world


def test_every_rank_makes_the_choice_of_one_process(together):
    together(check_queries)


def held_and_sent(ranks, n, k, c, steps):
    points, k, c, labels, truth, _ = pool(n, k=k, c=c, known=200, d=4)
    whole, graph = build_graph(points, k), build_graph(points, k, ranks=ranks)
    graph.halo, graph.most_edges  # noqa: B018, once for a graph
    first, stop = graph.share.first, graph.share.stop
    around = whole.col[first * k : stop * k].unique()
    elsewhere = int(((around < first) | (around >= stop)).sum())
    before = ranks.sent
    walk, start = Walk(graph, c + 1), torch.ones(len(graph.share), c + 1, dtype=torch.float64)
    for _ in range(steps):
        walk(start, graph.share.of(labels))
    walked, before = ranks.sent - before, ranks.sent
    kept = KeptStates(graph, labels, c, steps, None)
    state_bytes = sum(mass.nbytes for mass in kept.mass)
    before, calls = ranks.sent, ranks.calls
    nodes = (labels < 0).nonzero()[:3, 0]
    rows, _ = KeptStates(whole, labels, c, steps, None).frontier(nodes)
    kept.learn(nodes, truth[nodes])
    learned, learning_calls = ranks.sent - before, ranks.calls - calls
    own = rows[(rows >= first) & (rows < stop)]
    read = whole.col.view(n, k)[own].unique()
    read = int(((read < first) | (read >= stop)).sum())
    return {
        "elsewhere": elsewhere,
        "walked": walked,
        "state_bytes": state_bytes,
        "edges": len(graph.col),
        "learned": learned,
        "calls": learning_calls,
        "frontier": len(own),
        "read": read,
    }


def test_memory_and_bytes_are_those_of_the_formulas(together):
    n, k, c, steps, world = 5001, 6, 4, 3, len(together.pipes)
    answers = together(held_and_sent, n, k, c, steps)
    block, row = -(-n // world), 8 * (c + 1)
    total = {name: sum(answer[name] for answer in answers) for name in answers[0]}
    assert total["state_bytes"] == (steps + 1) * row * n
    for answer in answers:
        assert answer["edges"] <= k * block
        assert answer["state_bytes"] <= (steps + 1) * row * block
        assert answer["elsewhere"] <= min(n - block + world, k * block)
        # T - 1 layers of the frontier told, who reads what settled in two, T - 1 states read.
        assert answer["calls"] == 2 * (steps - 1) + 2
    # Whatever one rank reads another sends, so that the sums are exact: 8 bytes a row to ask, and T times its values.
    settled = 8 * world * (world - 1)
    assert total["walked"] == settled + (8 + steps * row) * total["elsewhere"]
    told = (steps - 1) * (2**16 + 8 * (world - 1) * max(answer["frontier"] for answer in answers)) * world
    assert total["read"] > 100
    assert total["learned"] <= told + steps * settled + (8 + (steps - 1) * row) * total["read"]


def check_a_ring(ranks):
    # By hand, with rows of different length: node i points at its two sides, the first at everybody.
    n = 11
    rows = [torch.arange(1, n)] + [torch.tensor(sorted({(i - 1) % n, (i + 1) % n})) for i in range(1, n)]
    crow = torch.tensor([0, *torch.tensor([len(row) for row in rows]).cumsum(0).tolist()])
    col, weight = torch.cat(rows), torch.ones(len(torch.cat(rows)))
    share = Share(ranks, n)
    start, stop = crow[share.first], crow[share.stop]
    part = NeighborGraph(crow[share.first : share.stop + 1] - start, col[start:stop], weight[start:stop], share)
    labels = torch.full((n,), -1)
    labels[3], labels[8] = 0, 1
    found, expected = (
        batch_query(graph, labels, 2, size=n, steps=2) for graph in (part, NeighborGraph(crow, col, weight))
    )
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


def test_a_graph_by_hand_with_rows_of_different_length(together):
    together(check_a_ring)


def check_selectors(ranks):
    points, k, c, labels, truth, soft = pool(120, known=9)
    known = {"labels": labels, "num_classes": c, "embeddings": points, "logits": soft.log(), "queries_before": 1}
    for selector in (
        DiffusionSelector(mini_batch=3, neighbors=k, soft_start=True),
        PoissonSelector(neighbors=k),
        DirichletSelector(neighbors=k),
        LocalMaxSelector(of=EntropySelector(), neighbors=k),
        LocalMaxSelector(of=DiffusionSelector(neighbors=k), neighbors=k),
    ):
        options, before = (
            {"generator": torch.Generator(), "timer": StageTimer(), "answer": lambda i: truth[i]},
            ranks.calls,
        )
        found = choose(selector, Snapshot(**known, ranks=ranks), 20, **options)
        expected = choose(selector, Snapshot(**known), 20, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert torch.equal(found.scores, expected.scores)
        assert ranks.calls > before


def test_a_snapshot_says_who_works_together(together):
    together(check_selectors)
