"""Real processes that search the neighbors together: every rank makes the choice of a single process."""

import pytest
import torch

from lightning_diffal import Snapshot, batch_query, build_graph, diffuse
from lightning_diffal.distributed import Ranks
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import (
    CoverageSelector,
    DiffusionSelector,
    DirichletSelector,
    EntropySelector,
    LocalMaxSelector,
    PoissonSelector,
)
from lightning_diffal.selectors.base import choose
from tests.process_group import ProcessGroup


@pytest.fixture(scope="module", params=[2, 3, 4])
def processes(request):
    group = ProcessGroup(request.param)
    yield group
    group.stop()


def pool(n, d=3, k=5, c=3, known=6, seed=0, parts=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, d, generator=generator, dtype=dtype)
    points += 1000 * (torch.arange(n) % parts)[:, None]
    truth = torch.randint(c, (n,), generator=generator)
    labels = torch.full((n,), -1)
    labeled = torch.randperm(n, generator=generator)[:known]
    labels[labeled] = truth[labeled]
    soft = torch.rand(n, c, generator=generator).softmax(dim=1)
    return points, k, c, labels, truth, soft


def copies(n):
    points, *rest = pool(n)
    points[n // 4 : n // 2] = points[0]
    return points, *rest


def cases():
    """Name, pool, whether the graph is symmetric, and options of the query."""
    yield "explore, then refine", pool(203, known=9), False, {"size": 49, "mini_batch": 7, "steps": 3}
    yield "shrinking", pool(301, known=12), True, {"size": 42, "mini_batch": 7, "steps": 4, "shrink_below": 0.3}
    yield "soft", pool(150, known=5), False, {"size": 20, "mini_batch": 7, "steps": 3, "soft": True}
    yield "recomputed", pool(101, known=20), True, {"size": 14, "mini_batch": 7, "steps": 2, "state_bytes": 6000}
    yield "coinciding points", copies(120), False, {"size": 28, "mini_batch": 7, "steps": 3}
    yield "components", pool(150, parts=3, known=2), False, {"size": 28, "mini_batch": 7, "steps": 4}
    yield "doubles", pool(90, known=10, dtype=torch.float64), False, {"size": 20, "mini_batch": 7}
    yield "fewer points than ranks", pool(3, k=1, known=1), False, {"size": 2, "steps": 2}


def check_queries(ranks):
    answers = []
    for name, (points, k, c, labels, truth, soft), symmetric, given in cases():
        options = dict(given)
        soft_labels = soft if options.pop("soft", False) else None
        alone, shared = (build_graph(points, k, symmetric=symmetric, ranks=of) for of in (Ranks(), ranks))
        chi = [diffuse(graph, labels, c, steps=3, soft_labels=soft_labels) for graph in (alone, shared)]
        assert torch.equal(*chi), name
        for answer in (None, lambda indices, truth=truth: truth[indices]):
            expected, found = (
                batch_query(graph, labels, c, soft_labels=soft_labels, answer=answer, **options)
                for graph in (alone, shared)
            )
            assert torch.equal(found.indices, expected.indices), name
            assert torch.equal(found.scores, expected.scores), name
            assert torch.equal(found.reached, expected.reached), name
            assert found.unreached == expected.unreached, name
            answers.append(found.indices.tolist())
    return answers


def test_every_rank_makes_the_choice_of_one_process(processes):
    first, *others = processes(check_queries)
    assert len(first) == 16
    assert all(other == first for other in others)


def check_selectors(ranks):
    points, k, c, labels, truth, soft = pool(120, known=9)
    known = {"labels": labels, "num_classes": c, "embeddings": points, "logits": soft.log(), "queries_before": 1}
    for selector in (
        DiffusionSelector(mini_batch=3, neighbors=k, soft_start=True),
        PoissonSelector(neighbors=k),
        CoverageSelector(neighbors=k),
        DirichletSelector(neighbors=k),
        LocalMaxSelector(of=EntropySelector(), neighbors=k),
        LocalMaxSelector(of=DiffusionSelector(neighbors=k), neighbors=k),
    ):
        options = {"generator": torch.Generator(), "timer": StageTimer(), "answer": lambda i: truth[i]}
        found = choose(selector, Snapshot(**known, ranks=ranks), 20, **options)
        expected = choose(selector, Snapshot(**known), 20, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert torch.equal(found.scores, expected.scores)


def test_a_snapshot_says_which_processes_search_together(processes):
    processes(check_selectors)
