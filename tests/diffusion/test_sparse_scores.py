"""Sparse masses against Algorithm 1 written out and against dense ones; what many classes cost in work and memory."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_diffal import batch_query, build_graph
from lightning_diffal.diffusion.scores import IncrementalScores, RecomputedScores
from lightning_diffal.diffusion.sparse_rows import Entries, SparseRows
from lightning_diffal.diffusion.sparse_scores import SparseScores
from lightning_diffal.selectors import mini_batches
from lightning_diffal.selectors.mini_batches import MiniBatchChooser, lowest_in_order
from tests import naive
from tests.selectors.test_batch_query import pool, same


def random_graph(n, k, lattice, parts, symmetric, generator):
    points = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    points = points.round() if lattice else points  # many coincide
    points[:, 0] += 1000 * (torch.arange(n) % parts)  # components
    return build_graph(points, k, symmetric=symmetric)


@given(
    n=st.integers(12, 60), k=st.integers(1, 5), c=st.sampled_from([1, 2, 5, 40]), known=st.integers(0, 30),
    size=st.integers(1, 40), mini_batch=st.sampled_from([1, 7]), steps=st.integers(1, 6),
    delta=st.none() | st.sampled_from([0.0, 0.5, 1.0]), answers=st.booleans(), symmetric=st.booleans(),
    lattice=st.booleans(), parts=st.integers(1, 2), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_it_is_algorithm_1(n, k, c, known, size, mini_batch, steps, delta, answers, symmetric, lattice, parts, seed):
    generator = torch.Generator().manual_seed(seed)
    graph = random_graph(n, k, lattice, parts, symmetric, generator)
    truth = torch.randint(c, (n,), generator=generator)
    labels = torch.full((n,), -1)
    labels[:known] = truth[:known]
    expected = naive.batch_query(
        naive.dense(graph), labels.numpy(), c, size, mini_batch, steps,
        answer=lambda i, chi: truth.numpy()[i] if answers else chi[i].round(10).argmax(axis=1), delta=delta,
    )  # fmt: skip
    options = {"size": size, "mini_batch": mini_batch, "steps": steps, "shrink_below": delta}
    with pytest.MonkeyPatch.context() as always_sparse:
        always_sparse.setattr(mini_batches, "FEW_CLASSES", 0)
        always_sparse.setattr(mini_batches, "DENSE_SHARE", 1e9)
        query = batch_query(graph, labels, c, answer=(lambda i: truth[i]) if answers else None, **options)
    same(query, *expected)


@pytest.mark.parametrize("mini_batch", [1, 7])
@pytest.mark.parametrize(
    ("n", "c", "known", "steps"),
    [(3000, 10_000, 2500, 3), (3000, 10_000, 300, 4), (2000, 50, 400, 6), (2000, 300, 20, 2), (500, 9, 100, 1)],
)
def test_scores_and_predicted_classes_are_those_of_dense_masses_to_the_last_bit(n, c, known, steps, mini_batch):
    graph, labels, truth = pool(n, d=4, k=7, c=c, known=known)
    sparse, dense = SparseScores(graph, labels, steps, 10**9), IncrementalScores(graph, labels, c, steps, None)
    for choice in range(6):
        expected = dense.compute(n)
        lowest = lowest_in_order(expected, mini_batch)
        few = sparse.compute(mini_batch)
        assert torch.equal(lowest_in_order(few, mini_batch), lowest)
        assert torch.equal(few[lowest], expected[lowest])
        assert (few <= expected).all(), "what is not computed is no more than it"
        if choice % 2:
            assert torch.equal(sparse.compute(n), expected)
        predicted = sparse.predicted_class(lowest)
        assert torch.equal(predicted, dense.predicted_class(lowest))
        for scores in (sparse, dense):
            scores.add_labels(lowest, truth[lowest] if choice % 3 else predicted)
            if choice == 3 and steps > 1:
                scores.set_steps(steps - 1)


@pytest.mark.parametrize("answers", [False, True])
def test_with_thousands_of_classes_it_is_algorithm_1_and_sparse(answers):
    graph, labels, truth = pool(400, d=4, k=5, c=2000, known=250)
    assert isinstance(MiniBatchChooser(graph, labels, 2000, 3, None, 2**32, 1).new_scores(), SparseScores)
    expected = naive.batch_query(
        naive.dense(graph), labels.numpy(), 2000, 12, 1, 3,
        lambda i, chi: truth.numpy()[i] if answers else chi[i].round(10).argmax(axis=1),
    )  # fmt: skip
    answer = (lambda i: truth[i]) if answers else None
    same(batch_query(graph, labels, 2000, size=12, steps=3, answer=answer), *expected)


def test_what_outgrows_its_memory_goes_on_without_being_kept():
    graph, labels, truth = pool(600, d=3, k=6, c=400, known=100)
    entries = sum(mass.num_entries for mass in SparseScores(graph, labels, 3, 10**9).mass)
    options = {"size": 90, "mini_batch": 3, "steps": 3, "answer": lambda i: truth[i]}
    sparse = batch_query(graph, labels, 400, **options)
    for few, kind in ((entries + 500, SparseScores), (entries - 1, RecomputedScores)):
        limit = SparseRows.BYTES_PER_ENTRY * few
        chooser = MiniBatchChooser(graph, labels, 400, 3, None, limit, 90)
        assert type(chooser.new_scores()) is kind
        query = batch_query(graph, labels, 400, state_bytes=limit, **options)
        assert torch.equal(query.indices, sparse.indices)
        assert torch.equal(query.scores, sparse.scores)


def test_where_most_masses_are_not_zero_they_are_dense():
    graph, labels, _ = pool(1500, d=3, k=6, c=100, known=300)
    kinds = [type(MiniBatchChooser(graph, labels, 100, t, None, 2**32, 1).new_scores()) for t in (2, 8)]
    assert kinds == [SparseScores, IncrementalScores]
    few = torch.where(labels < 60, labels, -1)
    assert type(MiniBatchChooser(graph, few, 100, 2, None, 2**32, 1).new_scores()) is IncrementalScores


@given(seed=st.integers(0, 2**31), n=st.integers(1, 12))
def test_replaced_rows_are_read_back_and_their_room_is_used_again(seed, n):
    generator = torch.Generator().manual_seed(seed)
    rows, expected, most = SparseRows(n, torch.device("cpu")), torch.zeros(n, 5, dtype=torch.float64), 0
    for _ in range(30):
        some = torch.randperm(n, generator=generator)[: int(torch.randint(n + 1, (), generator=generator))]
        values = torch.rand(len(some), 5, generator=generator, dtype=torch.float64).round(decimals=1) - 0.3
        values = values.clamp(min=0)
        expected[some] = values
        present = values > 0
        rows[some] = Entries(present.sum(dim=1), present.nonzero()[:, 1], values[present])
        most = max(most, rows.num_entries + int(present.sum()))
        assert torch.equal(rows[torch.arange(n)].matrix(5).to_dense(), expected)
        assert rows.num_entries == int((expected > 0).sum())
        assert len(rows.col) <= 1.5 * most


class CountElements(TorchDispatchMode):
    """Counts the elements that all operations of torch return, those that are stored of sparse tensors."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.count += tensor.numel() if tensor.layout == torch.strided else tensor._nnz()
        return result


def work_per_choice(graph, c, known, answers):
    """Elements for each choice after the first."""
    n = graph.num_nodes
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(c, (n,), generator=generator)
    labels = torch.where(torch.randperm(n, generator=generator) < known, truth, -1)
    counts = []
    for size in (2, 12):
        with CountElements() as counter:
            batch_query(graph, labels, c, size=size, steps=3, answer=(lambda i: truth[i]) if answers else None)
        counts.append(counter.count)
    return (counts[1] - counts[0]) / 10


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("known", [400, 2000])
def test_a_choice_among_ten_thousand_classes_is_at_most_twenty_times_the_work_among_ten(known, answers):
    graph = build_graph(torch.randn(4000, 8, generator=torch.Generator().manual_seed(0)), 18)
    graph.incoming, graph.transition  # noqa: B018 - cached, or the first to count would count them
    few, many = (work_per_choice(graph, c, known, answers) for c in (10, 10_000))
    assert 0 < many < 20 * few


def test_twelve_thousand_labels_of_seven_thousand_classes_fit_into_little_memory():
    # Four dense states of 20,000 × 7,000 are 4.5 GB.
    ended = subprocess.run(
        [sys.executable, "-m", "tests.diffusion.test_sparse_scores"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["chosen"] == 20
    assert result["added"] < 0.6


def test_every_tensor_is_made_on_the_device_of_the_graph_and_written_before_it_is_read():
    graph, labels, truth = pool(600, d=4, k=6, c=300, known=200)
    options = {"size": 60, "mini_batch": 3, "steps": 3, "shrink_below": 0.3}
    expected = batch_query(graph, labels, 300, answer=lambda i: truth[i].tolist(), **options)
    torch.use_deterministic_algorithms(True)  # fresh memory holds NaN
    try:
        with torch.device("meta"):
            query = batch_query(graph, labels, 300, answer=lambda i: truth[i].tolist(), **options)
    finally:
        torch.use_deterministic_algorithms(False)
    assert query.indices.tolist() == expected.indices.tolist()
    assert query.scores.tolist() == expected.scores.tolist()


def most_held():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    torch.set_num_threads(1)
    graph, labels, truth = pool(20_000, d=3, k=20, c=10_000, known=12_000)
    batch_query(graph, labels, 10_000, size=1, mini_batch=1, steps=1, state_bytes=2**20)
    before = most_held()
    chosen = batch_query(graph, labels, 10_000, size=20, steps=3, answer=lambda i: truth[i])
    print(json.dumps({"chosen": len(chosen), "added": most_held() - before}))
