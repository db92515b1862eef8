"""Poisson, Dirichlet and LocalMax against dense linear algebra on the same graph."""

import numpy as np
import pytest
import torch

from lightning_diffal import UNLABELED, build_graph
from lightning_diffal.selectors import (
    BADGESelector,
    BALDSelector,
    DiffusionSelector,
    DirichletSelector,
    LocalMaxSelector,
    MarginSelector,
    PoissonSelector,
)
from lightning_diffal.selectors.poisson import reweighted_laplace
from tests import naive
from tests.naive import dense
from tests.selectors.test_contract import ask, changed, snapshot_of


def graph_and_labels(seed=0, known=9, n=80, k=8):
    snapshot, _ = snapshot_of(n=n, known=known, seed=seed)
    return build_graph(snapshot.embeddings.double(), k, symmetric=True), snapshot.labels


def dense_poisson(weights, labels, num_classes, tau):
    """PWLL-τ for a connected graph: two linear systems, solved directly."""
    n, known = len(labels), labels >= 0
    source = known - known.mean()
    gamma = np.linalg.lstsq(np.diag(weights.sum(axis=1)) - weights, source, rcond=None)[0]
    gamma = gamma - gamma.min() + 1e-5
    weights = gamma[:, None] * weights * gamma
    system = np.diag(weights.sum(axis=1)) - weights + tau * np.eye(n)
    u = np.eye(num_classes)[np.maximum(labels, 0)] * known[:, None]
    u[~known] = np.linalg.solve(system[~known][:, ~known], -system[~known][:, known] @ u[known])
    return np.linalg.norm(u, axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tau", [0.0, 0.001, 0.1])
def test_the_norm_is_that_of_the_dense_solution(seed, tau):
    graph, labels = graph_and_labels(seed)
    expected = dense_poisson(dense(graph), labels.numpy(), 3, tau)
    assert reweighted_laplace(graph, labels, 3, tau).tolist() == pytest.approx(expected, abs=1e-4)


def test_poisson_asks_first_where_no_label_is_connected():
    snapshot, truth = snapshot_of(n=90, known=0)
    cloud = torch.arange(90) % 3
    points = snapshot.embeddings + 100 * cloud[:, None]
    labels = torch.where(torch.arange(90) < 12, cloud, UNLABELED)
    labels[cloud == 2] = UNLABELED
    for count in (2, 8):  # with τ and, after three labels for each class, without
        known = torch.where(labels.cumsum(0).new_tensor(range(90)) < 3 * count, labels, UNLABELED)
        query = ask(PoissonSelector(neighbors=5), changed(snapshot, embeddings=points, labels=known), 30, truth)
        assert (cloud[query.indices] == 2).all()
        assert (query.scores == 0).all()


def test_tau_fades_as_labels_come():
    few, truth = snapshot_of(n=90, known=3)
    many, _ = snapshot_of(n=90, known=30)
    fixed, fading = PoissonSelector(neighbors=6, tau=0.1, decay=False), PoissonSelector(neighbors=6, tau=0.1)
    none = PoissonSelector(neighbors=6, tau=0.0)
    assert torch.equal(ask(fixed, few, 9, truth).scores, ask(fading, few, 9, truth).scores)
    assert torch.equal(ask(none, many, 9, truth).scores, ask(fading, many, 9, truth).scores)
    assert not torch.equal(ask(fixed, many, 9, truth).scores, ask(fading, many, 9, truth).scores)


@pytest.mark.parametrize("seed", range(3))
def test_the_variance_is_that_of_the_dense_solution(seed):
    snapshot, truth = snapshot_of(n=80, seed=seed)
    snapshot = changed(snapshot, embeddings=snapshot.embeddings.double())
    weights = dense(build_graph(snapshot.embeddings, 8, symmetric=True))
    system = np.diag(weights.sum(axis=1)) - weights + 0.1 * np.eye(80)
    reach = np.linalg.solve(system, np.eye(80) - 1 / 80)  # column j: from j
    reach -= reach.min(axis=0)
    reach /= reach.diagonal()
    alpha = 1 + np.stack([reach[:, snapshot.labels == c].sum(axis=1) for c in range(3)], axis=1)
    draws = np.random.default_rng(0).dirichlet(alpha[0], size=200_000)
    query = ask(DirichletSelector(neighbors=8), snapshot, 71, truth)
    total = alpha.sum(axis=1)
    variance = (alpha * (total[:, None] - alpha)).sum(axis=1) / (total**2 * (total + 1))
    assert variance[0] == pytest.approx(draws.var(axis=0).sum(), rel=0.02), "the formula is that of a Dirichlet"
    assert (-query.scores).tolist() == pytest.approx(variance[query.indices], abs=1e-6)


def test_dirichlet_asks_far_from_labels_first():
    points = torch.linspace(0, 1, 60)[:, None]
    labels = torch.full((60,), UNLABELED)
    labels[:10] = torch.arange(10) % 2
    snapshot, truth = snapshot_of(classes=2, embeddings=points, labels=labels)
    assert ask(DirichletSelector(neighbors=4), snapshot, 5, truth).indices.min() > 50


def is_local(graph, chosen, order, i):
    """Whether i comes before all its neighbors that are left."""
    weights = dense(graph)
    around = np.flatnonzero(weights[i] + weights[:, i])
    return all(order.index(i) < order.index(j) for j in around if j in order and j not in chosen)


def test_a_batch_holds_local_maxima_best_first():
    snapshot, truth = snapshot_of(n=120, known=10)
    graph = build_graph(snapshot.embeddings, 4)
    order = ask(MarginSelector(), snapshot, 110, truth).indices.tolist()
    expected = [i for i in order if is_local(graph, [], order, i)]
    rest = [i for i in order if i not in expected]
    second = [i for i in rest if is_local(graph, expected, order, i)]
    query = ask(LocalMaxSelector(of=MarginSelector(), neighbors=4), snapshot, len(expected) + 5, truth)
    assert query.indices.tolist() == expected + second[:5]
    assert len(expected) > 10


def test_diffusion_is_a_score_too():
    snapshot, truth = snapshot_of(n=120, known=10)
    labels = snapshot.labels.numpy()
    order, _, reached = naive.batch_query(
        naive.weights(snapshot.embeddings, 4), labels, 3, 110, 110, 2, lambda chosen, signal: labels[chosen] * 0
    )
    assert 20 < sum(reached) < 90, "some are reached and some are not"
    graph = build_graph(snapshot.embeddings, 5)
    expected = [i for i in order if is_local(graph, [], order, i)]
    diffusion = DiffusionSelector(neighbors=4, steps=2)
    query = ask(LocalMaxSelector(of=diffusion, neighbors=5), snapshot, len(expected), truth)
    assert query.indices.tolist() == expected
    assert len(expected) > 5


def test_of_equal_scores_the_lower_index_counts_as_lower():
    snapshot, truth = snapshot_of(logits=torch.zeros(60, 3))
    indices = ask(LocalMaxSelector(of=MarginSelector(), neighbors=5), snapshot, 4, truth).indices
    weights = dense(build_graph(snapshot.embeddings, 5))
    assert indices[0] == snapshot.unlabeled[0]
    assert not (weights + weights.T)[indices][:, indices].any(), "no two are neighbors"


def test_the_graph_of_a_snapshot_is_built_once():
    snapshot, truth = snapshot_of(n=90)
    ask(LocalMaxSelector(of=PoissonSelector(neighbors=6), neighbors=6), snapshot, 5, truth)
    assert list(snapshot.graphs) == [("embeddings", 6)]
    ask(LocalMaxSelector(of=DirichletSelector(neighbors=7), neighbors=6), snapshot, 5, truth)
    assert list(snapshot.graphs) == [("embeddings", 6), ("embeddings", 7)]
    fresh = build_graph(snapshot.embeddings, 7, symmetric=True)
    assert (dense(snapshot.graphs["embeddings", 7]) == dense(fresh)).all()


def test_local_max_passes_on_what_its_score_needs():
    assert LocalMaxSelector(of=BALDSelector(passes=7)).needs == {"stochastic", "embeddings"}
    assert LocalMaxSelector(of=BALDSelector(passes=7)).passes == 7
    assert LocalMaxSelector(of=PoissonSelector()).passes is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalMaxSelector(of=BADGESelector()), r"of=BADGESelector\(\)\): a selector with a `score`"),
        (lambda: LocalMaxSelector(of=MarginSelector(), neighbors=0), r"LocalMaxSelector\(neighbors=0\)"),
        (lambda: PoissonSelector(tau=-1.0), r"PoissonSelector\(tau=-1.0\): a number of at least 0"),
        (lambda: PoissonSelector(neighbors=0), r"PoissonSelector\(neighbors=0\)"),
        (lambda: DirichletSelector(tau=0.0), r"DirichletSelector\(tau=0.0\): a positive number"),
        (lambda: DirichletSelector(prior=-1.0), r"DirichletSelector\(prior=-1.0\)"),
        (lambda: DirichletSelector(neighbors=0), r"DirichletSelector\(neighbors=0\)"),
    ],
)
def test_bad_parameters_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()
