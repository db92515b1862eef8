"""Graphs built by real processes together: every rank makes the choice of a single process."""

import pytest
import torch

from lightning_diffal import (
    DiffusionSelector,
    DirichletSelector,
    EntropySelector,
    LocalMaxSelector,
    PoissonSelector,
    Snapshot,
    batch_query,
    build_graph,
    diffuse,
)
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import choose
from tests.process_group import ProcessGroup


@pytest.fixture(scope="module", params=[2, 4])
def together(request):
    group = ProcessGroup(request.param)
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
        options, asked = dict(given), []

        def answer(indices, asked=asked, truth=truth):
            asked.append(indices.tolist())
            return truth[indices]

        options["soft_labels"] = soft if options.pop("soft", False) else None
        options["answer"] = None if options.pop("guess", False) else answer
        whole, mine = (build_graph(points, k, symmetric=symmetric, ranks=of) for of in (type(ranks)(), ranks))
        steps = options.get("steps") or 3
        chi, part = (diffuse(g, labels, c, steps=steps, soft_labels=options["soft_labels"]) for g in (whole, mine))
        assert torch.equal(part, chi), name
        expected, questions = batch_query(whole, labels, c, **options), len(asked)
        found = batch_query(mine, labels, c, **options)
        assert torch.equal(found.indices, expected.indices), name
        assert torch.equal(found.scores, expected.scores), name
        assert torch.equal(found.reached, expected.reached), name
        assert found.unreached == expected.unreached, name
        assert asked[questions:] == asked[:questions], name


def test_every_rank_makes_the_choice_of_one_process(together):
    together(check_queries)


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
        options = {"generator": torch.Generator(), "timer": StageTimer(), "answer": lambda i: truth[i]}
        found = choose(selector, Snapshot(**known, ranks=ranks), 20, **options)
        expected = choose(selector, Snapshot(**known), 20, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert torch.equal(found.scores, expected.scores)


def test_a_snapshot_says_who_works_together(together):
    together(check_selectors)
