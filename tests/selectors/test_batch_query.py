"""The choice against Algorithm 1 written out, and each of its rules on a case that shows it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_diffal import NeighborGraph, batch_query, build_graph
from lightning_diffal.diffusion.scores import IncrementalScores, RecomputedScores, frontier
from lightning_diffal.selectors.mini_batches import MiniBatchChooser
from tests import naive


def pool(n, d=3, k=5, c=3, known=6, seed=0, dtype=torch.float64, **options):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, d, generator=generator, dtype=dtype)
    truth = torch.randint(c, (n,), generator=generator)
    labels = torch.full((n,), -1)
    some = torch.randperm(n, generator=generator)[:known]
    labels[some] = truth[some]
    return build_graph(points, k, **options), labels, truth


def same(query, indices, scores, reached):
    assert query.indices.tolist() == [int(i) for i in indices]
    assert query.reached.tolist() == reached
    np.testing.assert_allclose(query.scores.numpy(), scores, rtol=0, atol=1e-9)


@given(
    n=st.integers(6, 60), k=st.integers(1, 5), c=st.integers(1, 4), known=st.integers(0, 6), size=st.integers(1, 70),
    mini_batch=st.integers(1, 9), steps=st.integers(1, 5), delta=st.none() | st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    soft=st.booleans(), symmetric=st.booleans(), lattice=st.booleans(), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_it_is_algorithm_1(n, k, c, known, size, mini_batch, steps, delta, soft, symmetric, lattice, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    graph = build_graph(points.round() if lattice else points, k, symmetric=symmetric)
    truth = torch.randint(c, (n,), generator=generator)
    labels = torch.full((n,), -1)
    labels[:known] = truth[:known]
    start = torch.rand(n, c, generator=generator, dtype=torch.float64).softmax(dim=1) if soft else None
    options = {"size": size, "mini_batch": mini_batch, "steps": steps, "shrink_below": delta, "soft_labels": start}
    expected = naive.batch_query(
        naive.dense(graph), labels.numpy(), c, size, mini_batch, steps,
        answer=lambda indices, chi: truth.numpy()[indices], soft=None if start is None else start.numpy(), delta=delta,
    )  # fmt: skip
    for state_bytes in (2**30, 1):  # incremental; recomputed, a class at a time
        query = batch_query(graph, labels, c, answer=lambda i: truth[i], state_bytes=state_bytes, **options)
        same(query, *expected)


@given(
    n=st.integers(6, 40), c=st.integers(2, 4), known=st.integers(0, 6), mini_batch=st.integers(1, 5),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_without_an_answer_a_point_is_taken_to_be_of_its_predicted_class(n, c, known, mini_batch, seed):
    graph, labels, _ = pool(n, k=4, c=c, known=known, seed=seed)
    expected = naive.batch_query(
        naive.dense(graph), labels.numpy(), c, 20, mini_batch, 3,
        answer=lambda indices, chi: chi[indices].round(10).argmax(axis=1),
    )  # fmt: skip
    for state_bytes in (2**30, 1):
        query = batch_query(graph, labels, c, size=20, mini_batch=mini_batch, steps=3, state_bytes=state_bytes)
        same(query, *expected)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("mini_batch", [1, 7])
def test_the_frontier_gives_what_full_recomputation_gives_to_the_last_bit(symmetric, mini_batch):
    graph, labels, truth = pool(3000, d=4, k=8, known=60, symmetric=symmetric)
    generator = torch.Generator().manual_seed(1)
    kept = IncrementalScores(graph, labels, 3, 4, None)
    for _ in range(15):
        nodes = torch.randperm(3000, generator=generator)[:mini_batch]
        nodes = nodes[kept.labels[nodes] < 0]
        kept.add_labels(nodes, truth[nodes])
        fresh = IncrementalScores(graph, kept.labels, 3, 4, None)
        assert torch.equal(kept.compute(1), fresh.compute(1))
        for after, again in zip(kept.mass, fresh.mass, strict=True):
            assert torch.equal(after, again)


def test_the_frontier_touches_only_what_a_new_label_reaches():
    graph, labels, _ = pool(5000, d=2, k=4, known=20)
    node = int((labels < 0).nonzero()[0])
    rows, within = frontier(graph, labels, torch.tensor([node]), 2)
    matrix = torch.from_numpy(naive.dense(graph)) > 0
    unlabeled = labels < 0
    first = matrix[:, node] & unlabeled
    second = ((matrix[:, first].any(dim=1)) & unlabeled) | first
    assert within == [int(first.sum()), int(second.sum())]
    assert set(rows.tolist()) == set(second.nonzero()[:, 0].tolist())
    assert len(rows) < 100


def test_unreached_points_come_first_by_influence():
    graph, labels, truth = pool(400, k=4, known=3, seed=2)
    query = batch_query(graph, labels, 3, size=40, steps=1, answer=lambda i: truth[i])
    assert not query.reached.any()
    assert (query.scores == 0).all()
    first = query.indices[0]
    _, reached = naive.chi(naive.dense(graph), labels.numpy(), 3, 1)
    unreached = torch.from_numpy(~reached)
    assert unreached[first]
    assert graph.influence[first] == graph.influence[unreached].max()


def test_unreached_is_not_the_same_as_undecided():
    # A path 0 - 1 - ... - 6 with a label at both ends: in 3 steps both classes reach node 3 with the same mass,
    # χ = 0, and it is reached; in 2 steps no label reaches it.
    crow = torch.tensor([0, 1, 3, 5, 7, 9, 11, 12])
    col = torch.tensor([1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5])
    graph = NeighborGraph(crow, col, torch.ones(12, dtype=torch.float64))
    labels = torch.tensor([0, -1, -1, -1, -1, -1, 1])
    for steps, reached in ((3, True), (2, False)):
        query = batch_query(graph, labels, 2, size=1, steps=steps)
        assert query.indices.tolist() == [3]
        assert query.scores.tolist() == [0]
        assert query.reached.tolist() == [reached]


def test_mass_too_small_for_a_float_still_reaches():
    # A ring of which every step loses most of the mass to itself: after 400 steps 10⁻⁸⁰⁰ is left, and it arrived.
    n = 500
    source = torch.arange(n)
    col = torch.stack([source, (source - 1) % n], dim=1).sort(dim=1).values
    weight = torch.where(col == source[:, None], 1.0, 0.01).double()
    graph = NeighborGraph(torch.arange(0, 2 * n + 1, 2), col.flatten(), weight.flatten())
    labels = torch.full((n,), -1)
    labels[0] = 0
    query = batch_query(graph, labels, 2, size=n - 1, mini_batch=n - 1, steps=400)
    assert (~query.reached).sum() == n - 1 - 400


def test_ties_go_to_the_lower_index():
    points = torch.zeros(30, 2)  # all alike in every respect
    query = batch_query(build_graph(points, 3), torch.full((30,), -1), 2, size=30, mini_batch=7)
    assert query.indices[:7].tolist() == list(range(7))
    # Thirds do not sum to one exactly, yet nodes that are equal on paper tie.
    graph = build_graph(torch.arange(40.0)[:, None], 3)
    labels = torch.full((40,), -1)
    labels[::2] = torch.arange(20) % 2
    same(
        batch_query(graph, labels, 2, size=10, mini_batch=3, steps=2, answer=lambda i: i % 2),
        *naive.batch_query(naive.dense(graph), labels.numpy(), 2, 10, 3, 2, answer=lambda i, chi: i % 2),
    )


def test_no_labels_at_all_influence_alone_decides():
    graph, labels, _ = pool(100, known=0)
    query = batch_query(graph, labels, 3, size=1)
    assert query.indices[0] == graph.influence.argmax()
    assert not query.reached[0]


def test_fewer_unlabeled_points_than_asked_for_all_of_them():
    graph, labels, truth = pool(30, known=22)
    query = batch_query(graph, labels, 3, size=100, mini_batch=3, answer=lambda i: truth[i])
    assert sorted(query.indices.tolist()) == (labels < 0).nonzero()[:, 0].tolist()
    none = batch_query(graph, truth, 3, size=5)
    assert len(none) == 0
    assert none.indices.dtype == torch.int64
    assert none.scores.dtype == torch.float64
    assert none.reached.dtype == torch.bool


def test_the_oracle_is_asked_once_for_each_point_and_in_time():
    graph, labels, truth = pool(80)
    asked = []

    def answer(indices):
        asked.append(indices.tolist())
        return truth[indices].tolist()  # a list will do as well

    query = batch_query(graph, labels, 3, size=11, mini_batch=4, answer=answer)
    assert [len(part) for part in asked] == [4, 4, 3]
    assert [i for part in asked for i in part] == query.indices.tolist()
    assert len(set(query.indices.tolist())) == 11
    assert (labels[query.indices] == -1).all(), "the labels given are not written to"


def test_a_small_share_of_unreached_points_shrinks_the_steps_and_a_query_starts_over():
    graph, labels, truth = pool(300, k=6, known=40)
    for delta, steps in ((1.0, [4, 3, 2, 1, 1, 1]), (None, [4] * 6), (0.0, [4] * 6)):
        known, expected = labels.clone(), []
        for count in steps:
            node = int(batch_query(graph, known, 3, size=1, steps=count).indices)
            known[node] = truth[node]
            expected.append(node)
        for _ in range(2):
            query = batch_query(graph, labels, 3, size=6, steps=4, shrink_below=delta, answer=lambda i: truth[i])
            assert query.indices.tolist() == expected


def test_a_soft_start_leaves_nothing_unreached():
    graph, labels, truth = pool(200, known=0)
    soft = torch.full((200, 3), 1 / 3, dtype=torch.float64)
    query = batch_query(graph, labels, 3, size=5, soft_labels=soft, answer=lambda i: truth[i])
    assert query.reached.all()
    assert query.indices[0] == 0, "1/3 everywhere: all tie"


def test_both_ways_to_keep_scores_choose_the_same_and_the_memory_bound_decides():
    graph, labels, truth = pool(500, c=6, known=30)
    options = {"size": 150, "mini_batch": 5, "steps": 3, "answer": lambda i: truth[i]}
    needed = 8 * 4 * 7 * 500
    kinds = [MiniBatchChooser(graph, labels, 6, 3, None, limit, 150).new_scores() for limit in (needed, needed - 1)]
    assert [type(scores) for scores in kinds] == [IncrementalScores, RecomputedScores]
    incremental = batch_query(graph, labels, 6, state_bytes=needed, **options)
    recomputed = batch_query(graph, labels, 6, state_bytes=needed - 1, **options)
    assert incremental.reached.any()
    assert torch.equal(incremental.indices, recomputed.indices)
    assert torch.equal(incremental.scores, recomputed.scores)


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("state_bytes", [2**32, 2**20])
def test_classes_without_a_label_change_no_choice(answers, state_bytes):
    # Forty classes, a label each for the first ten; then the same among ten thousand classes, in the same order.
    graph, _, truth = pool(800, c=40, known=0, k=8)
    labels = torch.where((truth < 10) & (torch.arange(800) < 160), truth, -1)
    place = torch.randperm(9_999, generator=torch.Generator().manual_seed(1))[:39].sort().values + 1
    place = torch.cat([torch.zeros(1, dtype=torch.long), place])  # class 0 stands in where no label has come
    options = {"size": 120, "mini_batch": 3, "steps": 2, "state_bytes": state_bytes}
    few = batch_query(graph, labels, 40, answer=(lambda i: truth[i]) if answers else None, **options)
    spread = torch.where(labels >= 0, place[labels], -1)
    many = batch_query(graph, spread, 10_000, answer=(lambda i: place[truth[i]]) if answers else None, **options)
    assert few.reached.any()
    assert torch.equal(many.indices, few.indices)
    assert torch.equal(many.scores, few.scores)
    same(
        few,
        *naive.batch_query(
            naive.dense(graph), labels.numpy(), 40, 120, 3, 2,
            lambda i, chi: truth.numpy()[i] if answers else chi[i].round(10).argmax(axis=1),
        ),
    )  # fmt: skip


def test_the_number_of_threads_changes_nothing():
    graph, labels, truth = pool(4000, d=6, k=10, known=100, dtype=torch.float32)
    threads = torch.get_num_threads()
    try:
        chosen = []
        for count in (1, 2):
            torch.set_num_threads(count)
            chosen.append(batch_query(graph, labels, 3, size=100, mini_batch=2, answer=lambda i: truth[i]))
    finally:
        torch.set_num_threads(threads)
    assert chosen[0].reached.any(), "χ was computed"
    assert torch.equal(chosen[0].indices, chosen[1].indices)
    assert torch.equal(chosen[0].scores, chosen[1].scores)
    assert chosen[0].scores.dtype == torch.float32


def test_renumbering_the_pool_renumbers_the_query():
    _, labels, truth = pool(300, known=10)
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(9))
    here = batch_query(build_graph(points, 5), labels, 3, size=60, mini_batch=3, answer=lambda i: truth[i])
    there = batch_query(
        build_graph(points[order], 5), labels[order], 3, size=60, mini_batch=3, answer=lambda i: truth[order][i]
    )
    assert order[there.indices].tolist() == here.indices.tolist()


def test_a_bar_can_be_drawn_over_the_mini_batches_and_no_generator_is_touched():
    graph, labels, truth = pool(100)
    lengths, seen, state = [], [], torch.get_rng_state()

    def progress(batches):
        lengths.append(len(batches))
        for start in batches:
            yield start
            seen.append(start)  # the last one too, or a bar ends one short

    batch_query(graph, labels, 3, size=10, mini_batch=4, answer=lambda i: truth[i], progress=progress)
    assert lengths == [3]
    assert seen == [0, 4, 8]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, r"batch_query\(size=0\).*at least 1"),
        ({"mini_batch": 0}, r"mini_batch=0.*at least 1"),
        ({"mini_batch": 1.5}, r"mini_batch=1.5.*whole number"),
        ({"steps": 0}, r"steps=0.*at least 1"),
        ({"num_classes": 2}, r"batch_query\(labels.*outside \[-1, 2\), the first is 2"),
        ({"shrink_below": 10}, r"shrink_below=10.*\[0, 1\]"),
        ({"shrink_below": float("nan")}, r"shrink_below=nan"),
        ({"soft_labels": torch.zeros(30, 3)}, r"batch_query\(soft_labels.*30 of 30 rows"),
        ({"answer": lambda i: torch.full_like(i, -1)}, r"answer.*asked about the points \[\d+\] it answered \[-1\]"),
        ({"answer": lambda i: torch.full_like(i, 3)}, r"answer.*answered \[3\]. One class in \[0, 3\)"),
        ({"answer": lambda i: torch.zeros(2, dtype=torch.long)}, r"answer.*answered \[0, 0\]"),
        ({"answer": lambda i: torch.zeros(1)}, r"answer.*answered \[0.0\]"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(change, message):
    graph, labels, truth = pool(30)
    labels[0] = 2
    arguments = {"labels": labels, "num_classes": 3, "size": 5, "answer": lambda i: truth[i]} | change
    with pytest.raises(ValueError, match=message):
        batch_query(graph, **arguments)
