"""Every tensor is made on the device of the input.

No machine of ours has a GPU. Inside `torch.device("meta")` every factory that is not told a device makes a tensor
without data, and the first contact with the real inputs on the CPU fails: as a forgotten `device=` would fail on CUDA.
"""

import pytest
import torch

from lightning_diffal import UNLABELED, batch_query, build_graph, diffuse
from tests.graph.pruned import register_pruned


def test_the_check_can_fail():
    points = torch.randn(5, 2)
    with torch.device("meta"), pytest.raises((RuntimeError, NotImplementedError)):
        (points + torch.zeros(5, 2)).tolist()


@pytest.mark.parametrize("backend", ["auto", "torch", "cluster", "faiss", "approximate"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_graphs_are_made_on_the_device_of_the_embeddings(backend, symmetric):
    points = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    points[50:80] = points[0]  # more copies than neighbors, a path of their own
    expected = build_graph(points, 6, backend=backend, symmetric=symmetric)
    with torch.device("meta"):
        graph = build_graph(points, 6, backend=backend, symmetric=symmetric)
    assert torch.equal(graph.col, expected.col)
    assert torch.equal(graph.weight, expected.weight)
    assert torch.equal(graph.influence, expected.influence)


def test_the_pruned_search_and_all_differences_make_every_tensor_on_the_device_of_the_points(monkeypatch):
    register_pruned(monkeypatch)
    lattice = torch.cartesian_prod(*[torch.arange(6.0)] * 3)  # ties everywhere: no row is certain
    with torch.device("meta"):
        graph = build_graph(lattice, 4, backend="pruned")
    assert graph.col[:4].tolist() == [1, 6, 7, 36]


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("state_bytes", [1, 2**30])
@pytest.mark.parametrize("mini_batch", [1, 3])
def test_diffusion_and_query_stay_on_the_device_of_the_graph(soft, state_bytes, mini_batch):
    generator = torch.Generator().manual_seed(1)
    graph = build_graph(torch.randn(150, 3, generator=generator), 5)
    truth = torch.randint(3, (150,), generator=generator)
    labels = torch.full((150,), UNLABELED)
    labels[:12] = truth[:12]
    start = torch.full((150, 3), 1 / 3) if soft else None
    options = {
        "size": 60,
        "mini_batch": mini_batch,
        "soft_labels": start,
        "shrink_below": 0.3,
        "state_bytes": state_bytes,
    }

    def run():
        chi = diffuse(graph, labels, 3, steps=3, soft_labels=start)
        answered = batch_query(graph, labels, 3, answer=lambda i: truth[i].tolist(), **options)
        return chi, answered, batch_query(graph, labels, 3, **options)

    chi, answered, guessed = run()
    fresh = build_graph(torch.randn(150, 3, generator=torch.Generator().manual_seed(1)), 5)
    with torch.device("meta"):
        graph = fresh  # nothing of it is cached yet
        chi_again, answered_again, guessed_again = run()
    assert torch.equal(chi_again, chi)
    assert answered_again.indices.tolist() == answered.indices.tolist()
    assert guessed_again.indices.tolist() == guessed.indices.tolist()


def test_nothing_reads_memory_it_did_not_write(monkeypatch):
    register_pruned(monkeypatch)
    # In this mode, which Trainer(deterministic=True) sets, fresh memory holds NaN and unsafe operations raise.
    points = torch.randn(600, 4, generator=torch.Generator().manual_seed(2))
    points[100:130] = points[0]
    labels = torch.full((600,), UNLABELED)
    labels[:30] = torch.arange(30) % 3
    expected = batch_query(build_graph(points, 6, backend="faiss"), labels, 3, size=200, mini_batch=4)
    torch.use_deterministic_algorithms(True)
    try:
        query = batch_query(build_graph(points, 6, backend="pruned"), labels, 3, size=200, mini_batch=4)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(query.indices, expected.indices)
    assert torch.equal(query.scores, expected.scores)
