"""χ against the linear system it solves, the walk by hand, and the symmetries it must have."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_diffal import NeighborGraph, build_graph, diffuse
from lightning_diffal.diffusion.diffuse import default_steps
from tests import naive


def pool(n, d=3, k=6, c=3, known=8, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, d, generator=generator, dtype=torch.float64)
    labels = torch.full((n,), -1)
    labeled = torch.randperm(n, generator=generator)[:known]
    labels[labeled] = torch.randint(c, (known,), generator=generator)
    return build_graph(points, k, **options), labels


@pytest.mark.parametrize("symmetric", [False, True])
def test_many_steps_reach_the_harmonic_solution(symmetric):
    graph, labels = pool(80, known=12, symmetric=symmetric)
    weight = torch.from_numpy(naive.dense(graph))
    laplacian = weight.sum(dim=1).diag() - weight
    known, unknown = labels >= 0, labels < 0
    target = 2.0 * torch.nn.functional.one_hot(labels[known], 3).double() - 1
    harmonic = torch.linalg.solve(laplacian[unknown][:, unknown], weight[unknown][:, known] @ target)
    found = diffuse(graph, labels, 3, steps=3000)
    torch.testing.assert_close(found[unknown], harmonic, rtol=0, atol=1e-9)
    torch.testing.assert_close(found[known], target, rtol=0, atol=0)


@given(
    n=st.integers(5, 40), k=st.integers(1, 4), c=st.integers(1, 5), known=st.integers(0, 5), steps=st.integers(1, 6),
    soft=st.booleans(), symmetric=st.booleans(), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_the_result_is_the_diffusion_of_the_paper(n, k, c, known, steps, soft, symmetric, seed):
    graph, labels = pool(n, k=k, c=c, known=known, seed=seed, symmetric=symmetric)
    start = torch.rand(n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(dim=1)
    found = diffuse(graph, labels, c, steps=steps, soft_labels=start if soft else None)
    expected, _ = naive.chi(naive.dense(graph), labels.numpy(), c, steps, start.numpy() if soft else None)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
    assert found.abs().max() <= 1 + 1e-12


def test_no_mass_crosses_between_disconnected_components():
    points = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    points[30:] += 1000
    graph = build_graph(points, 5)
    labels = torch.full((60,), -1)
    labels[:3] = torch.tensor([0, 1, 1])
    found = diffuse(graph, labels, 2, steps=500)
    assert (found[30:] == 0).all(), "exactly zero"
    assert (found[:30] != 0).any(dim=1).all()


def test_renumbering_the_nodes_permutes_the_result():
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    labels = torch.full((100,), -1)
    labels[:10] = torch.arange(10) % 4
    order = torch.randperm(100, generator=generator)
    found = diffuse(build_graph(points, 7), labels, 4, steps=4)
    permuted = diffuse(build_graph(points[order], 7), labels[order], 4, steps=4)
    torch.testing.assert_close(permuted, found[order], rtol=0, atol=1e-14)


def test_two_steps_on_a_path_worked_by_hand():
    # 0 - 1 - 2 - 3 - 4 with a label at each end; each inner node steps left or right with equal chance.
    crow, col = torch.tensor([0, 1, 3, 5, 7, 8]), torch.tensor([1, 0, 2, 1, 3, 2, 4, 3])
    graph = NeighborGraph(crow, col, torch.ones(8, dtype=torch.float64))
    labels = torch.tensor([0, -1, -1, -1, 1])
    one = torch.tensor([[1, -1], [0.5, -0.5], [0, 0], [-0.5, 0.5], [-1, 1]], dtype=torch.float64)
    assert torch.equal(diffuse(graph, labels, 2, steps=1), one)
    assert torch.equal(diffuse(graph, labels, 2, steps=2), one)  # the two sides cancel in the middle
    three_classes = diffuse(graph, labels, 3, steps=2)
    assert torch.equal(three_classes[2], torch.tensor([0.0, 0.0, -0.5 - 0.0], dtype=torch.float64))


def test_a_soft_start_does_not_change_labels_and_vanishes_after_many_steps():
    graph, labels = pool(50, known=6)
    certain = torch.zeros(50, 3, dtype=torch.float64)
    certain[:, 2] = 1
    one_step, many_steps = (diffuse(graph, labels, 3, steps=steps, soft_labels=certain) for steps in (1, 3000))
    assert (one_step[labels >= 0].argmax(dim=1) == labels[labels >= 0]).all()
    assert (one_step[labels < 0][:, 2] > 0).any()
    torch.testing.assert_close(many_steps, diffuse(graph, labels, 3, steps=3000), rtol=0, atol=1e-9)


def test_float32_embeddings_give_a_float32_signal_summed_in_float64():
    points = torch.randn(300, 5, generator=torch.Generator().manual_seed(2))
    graph = build_graph(points, 8)
    labels = torch.full((300,), -1)
    labels[:20] = torch.arange(20) % 3
    found = diffuse(graph, labels, 3, steps=5)
    expected, _ = naive.chi(naive.dense(graph), labels.numpy(), 3, 5)
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_labels_may_be_small_integers(dtype):
    graph, labels = pool(40)
    assert torch.equal(diffuse(graph, labels.to(dtype), 3, steps=2), diffuse(graph, labels, 3, steps=2))
    all_known = torch.arange(40, dtype=torch.uint8) % 3
    assert torch.equal(diffuse(graph, all_known, 3, steps=2).argmax(dim=1), all_known.long())


def test_inputs_are_not_modified_and_the_result_has_no_gradient():
    graph, labels = pool(40)
    before = labels.clone()
    soft = torch.full((40, 3), 1 / 3, requires_grad=True)
    assert not diffuse(graph, labels, 3, steps=2, soft_labels=soft).requires_grad
    assert torch.equal(labels, before)


@pytest.mark.parametrize(
    ("n", "k", "steps"), [(10_000, 10, 4), (50_000, 20, 4), (100_000, 10, 5), (4, 1, 2), (2, 1, 1)]
)
def test_the_default_number_of_steps(n, k, steps):
    crow = torch.arange(0, n * k + 1, k)
    graph = NeighborGraph(crow, (torch.arange(n * k) % n), torch.ones(n * k))
    assert default_steps(graph) == steps


ROWS = torch.full((40, 3), 1 / 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"labels": torch.tensor([0] * 38 + [3, -2])},
            r"2 of 40 labels are outside \[-1, 3\), the first is 3 at index 38",
        ),
        ({"labels": torch.zeros(39, dtype=torch.long)}, r"graph's 40 points.*\(39,\)"),
        ({"labels": torch.zeros(40, 1, dtype=torch.long)}, r"graph's 40 points.*\(40, 1\)"),
        ({"labels": torch.zeros(40)}, r"labels.*integers.*float32"),
        ({"labels": torch.zeros(40, dtype=torch.bool)}, r"labels.*integers.*bool"),
        ({"labels": [0] * 40}, r"labels.*tensor is needed, list"),
        ({"labels": torch.zeros(40, dtype=torch.long, device="meta")}, r"labels are on meta, the graph is on cpu"),
        ({"num_classes": 0}, r"num_classes=0.*at least 1"),
        ({"num_classes": 2.0}, r"num_classes=2.0.*whole number"),
        ({"steps": 0}, r"steps=0.*at least 1"),
        ({"steps": -1}, r"steps=-1.*at least 1"),
        ({"steps": True}, r"steps=True.*whole number"),
        ({"soft_labels": ROWS[:, :2]}, r"soft_labels.*\(40, 3\).*\(40, 2\)"),
        ({"soft_labels": ROWS * 2}, r"soft_labels.*40 of 40 rows.*softmax"),
        ({"soft_labels": ROWS.clone().index_fill_(0, torch.tensor([5]), float("nan"))}, r"1 of 40 rows.*row 5"),
        ({"soft_labels": torch.tensor([2.0, -1.0, 0.0]).expand(40, 3)}, r"40 of 40 rows"),
        ({"soft_labels": torch.zeros(40, 3, dtype=torch.long)}, r"soft_labels.*floating-point"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    graph, labels = pool(40)
    arguments = {"labels": labels, "num_classes": 3, "steps": 2} | change
    with pytest.raises(ValueError, match=rf"diffuse\(.*{message}"):
        diffuse(graph, **arguments)
