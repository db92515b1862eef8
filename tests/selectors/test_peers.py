"""Our selectors against those of scikit-activeml and graphlearning: the same pool, the same model, the same choices.

Where a peer chooses at random between equal points it is made to take the first of them, as ours do. Where both are
random, the probabilities are compared. What no peer offers is compared with dense algebra or brute force in the other
files.
"""

from types import SimpleNamespace

import graphlearning
import numpy as np
import pytest
import skactiveml.pool
import torch
from graphlearning.active_learning import active_learner, unc_sampling
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from skactiveml.base import SkactivemlClassifier

from lightning_diffal import UNLABELED, build_graph
from lightning_diffal.selectors import (
    BADGESelector,
    BALDSelector,
    CoresetSelector,
    EntropySelector,
    MarginSelector,
    PoissonSelector,
    ProbCoverSelector,
    TypiClustSelector,
    UncertaintySelector,
    typiclust,
)
from lightning_diffal.selectors.badge import Gradients
from lightning_diffal.selectors.probcover import pure_radius
from tests.naive import dense
from tests.selectors.test_contract import ask, changed, snapshot_of, stochastic_of

CLASSES = 4


def pool(**changes):
    return snapshot_of(**{"n": 300, "known": 25, "classes": CLASSES} | changes)


def fixed_classifier(snapshot, probabilities):
    """A fitted classifier of scikit-activeml that returns these probabilities of the unlabeled points."""
    candidates = probabilities[snapshot.unlabeled].double().numpy()

    class Model(SkactivemlClassifier):
        def fit(self, X, y, sample_weight=None):  # noqa: N803
            return self

        def predict_proba(self, X):  # noqa: N803
            return candidates / candidates.sum(axis=1, keepdims=True)

    model = Model(classes=list(range(CLASSES)))
    model.classes_ = np.arange(CLASSES)  # what a fitted one has
    return model


def activeml(strategy, snapshot, size, **options):
    labels = snapshot.labels.numpy()
    target = np.where(labels >= 0, labels, np.nan)
    return strategy.query(snapshot.embeddings.double().numpy(), target, batch_size=size, **options)


def fixed_clusters(cluster):
    """A clustering for scikit-activeml that is known beforehand."""

    class Given:
        def __init__(self, n_clusters):
            pass

        def fit_predict(self, X):  # noqa: N803
            return cluster.numpy()

    return Given


def first_of_equals(utilities, random_state):
    return [np.nanargmax(utilities)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("passes", [None, 5])
@pytest.mark.parametrize(
    ("selector", "method"),
    [
        (UncertaintySelector, "least_confident"),
        (MarginSelector, "margin_sampling"),
        (EntropySelector, "entropy"),
    ],
)
def test_the_least_sure_points_are_scikit_activemls(selector, method, passes, seed):
    snapshot, truth = pool(seed=seed)
    model = fixed_classifier(snapshot, snapshot.probabilities if passes is None else snapshot.stochastic.probabilities)
    strategy = skactiveml.pool.UncertaintySampling(method=method, random_state=0)
    theirs = activeml(strategy, snapshot, 40, clf=model, fit_clf=False)
    assert ask(selector(passes=passes), snapshot, 40, truth).indices.tolist() == list(theirs)


@pytest.mark.parametrize("seed", range(3))
def test_the_points_that_passes_contradict_each_other_about_are_scikit_activemls(seed):
    snapshot, truth = pool()
    logits = snapshot.logits + torch.randn(7, 300, CLASSES, generator=torch.Generator().manual_seed(seed))
    snapshot = changed(snapshot, stochastic=stochastic_of(logits))
    ensemble = [fixed_classifier(snapshot, one) for one in logits.softmax(dim=2)]
    strategy = skactiveml.pool.GreedyBALD(random_state=0)
    theirs, utilities = activeml(strategy, snapshot, 40, ensemble=ensemble, fit_ensemble=False, return_utilities=True)
    query = ask(BALDSelector(passes=7), snapshot, 40, truth)
    assert query.indices.tolist() == list(theirs)
    assert (-query.scores).tolist() == pytest.approx(utilities[0][theirs], abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_coreset_is_scikit_activemls(seed):
    snapshot, truth = pool(seed=seed)
    theirs, utilities = activeml(skactiveml.pool.CoreSet(random_state=0), snapshot, 60, return_utilities=True)
    query = ask(CoresetSelector(), snapshot, 60, truth)
    assert query.indices.tolist() == theirs.tolist()
    assert (-query.scores).tolist() == pytest.approx(utilities[np.arange(60), theirs], rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_badge_draws_with_scikit_activemls_probabilities_at_every_step(seed, monkeypatch):
    snapshot, truth = pool(seed=seed)
    unlabeled = snapshot.unlabeled
    query = ask(BADGESelector(), snapshot, 30, truth, seed=seed)
    position = torch.searchsorted(unlabeled, query.indices)
    draws = iter(position[1:].tolist())  # the first is not random
    same_draws = SimpleNamespace(choice=lambda *_, **__: [next(draws)])
    monkeypatch.setattr("skactiveml.base.check_random_state", lambda *_: same_draws)
    theirs, probability = activeml(
        skactiveml.pool.Badge(),
        snapshot,
        30,
        clf=fixed_classifier(snapshot, snapshot.probabilities),
        fit_clf=False,
        return_utilities=True,
    )
    assert query.indices.tolist() == theirs
    gradients = Gradients(snapshot.points[unlabeled], snapshot.probabilities[unlabeled])
    nearest = gradients.distance_to(position).cummin(dim=1).values  # (u, 30): after each choice
    assert (-query.scores[1:]).tolist() == pytest.approx(nearest[position[1:], torch.arange(29)].tolist(), rel=1e-4)
    # scikit-activeml 1.0.1 also counts the distance to 0, as if a gradient of 0 had been chosen; the authors do not.
    also_to_zero = torch.minimum(nearest, gradients.square_norm[:, None])
    for step in range(1, 30):
        expected = np.nan_to_num(probability[step][unlabeled])  # 0 for the chosen
        ours = also_to_zero[:, step - 1] / also_to_zero[:, step - 1].sum()
        assert ours.numpy() == pytest.approx(expected, abs=1e-6)


def test_typiclust_is_scikit_activemls_on_the_same_clusters(monkeypatch):
    size_of = torch.arange(8, 24)  # all different: scikit-activeml chooses at random between equal ones
    cluster = torch.repeat_interleave(torch.arange(16), size_of)
    labels = torch.where((cluster % 4 == 0) & (torch.arange(len(cluster)) % 3 == 0), 1, UNLABELED)
    snapshot, truth = pool(n=len(cluster), labels=labels)
    monkeypatch.setattr(typiclust, "kmeans", lambda points, clusters, generator: cluster)
    for neighbors in (3, 20):
        strategy = skactiveml.pool.TypiClust(k=neighbors, cluster_algo=fixed_clusters(cluster), random_state=0)
        theirs = activeml(strategy, snapshot, 12)  # all clusters without a label
        assert ask(TypiClustSelector(neighbors=neighbors), snapshot, 12, truth).indices.tolist() == theirs.tolist()


def test_typiclust_spreads_over_the_pool_as_scikit_activemls_does_with_clusters_of_its_own():
    snapshot, truth = pool()
    points = snapshot.embeddings.double().numpy()

    def gap(indices):
        return cdist(points, points[np.concatenate([snapshot.labeled, indices])]).min(axis=1).mean()

    ours = [gap(ask(TypiClustSelector(), snapshot, 20, truth, seed=seed).indices) for seed in range(5)]
    theirs = [gap(activeml(skactiveml.pool.TypiClust(k=20, random_state=seed), snapshot, 20)) for seed in range(5)]
    random = [gap(np.random.default_rng(seed).choice(snapshot.unlabeled, 20)) for seed in range(5)]
    # Clusters depend on the seed; the means of five differ by less than a third of the distance to random choice.
    assert abs(np.mean(ours) - np.mean(theirs)) < (np.mean(random) - np.mean(theirs)) / 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("radius", [0.7, 1.5, 2.5])
def test_probcover_is_scikit_activemls(radius, seed, monkeypatch):
    monkeypatch.setattr("skactiveml.pool._prob_cover.rand_argmax", first_of_equals)
    snapshot, truth = pool(seed=seed)
    strategy = skactiveml.pool.ProbCover(n_classes=CLASSES, deltas=[radius], alpha=1e-9, random_state=0)
    with pytest.warns(UserWarning, match="maximum purity"):  # of one radius it computes none
        theirs, utilities = activeml(strategy, snapshot, 50, return_utilities=True)
    query = ask(ProbCoverSelector(radius=radius), snapshot, 50, truth)
    assert query.indices.tolist() == theirs.tolist()
    assert (-query.scores).tolist() == utilities[np.arange(50), theirs].tolist()


@pytest.mark.parametrize("purity", [0.5, 0.9])
def test_the_radius_is_scikit_activemls_to_the_next_that_it_tries(purity):
    snapshot, _ = pool()
    cluster = torch.arange(300) % CLASSES  # the clouds
    tried = np.arange(0.02, 4, 0.02)
    strategy = skactiveml.pool.ProbCover(
        n_classes=CLASSES, deltas=tried, alpha=purity, cluster_algo=fixed_clusters(cluster), random_state=0
    )
    activeml(strategy, snapshot, 1)
    radius = pure_radius(snapshot.embeddings, cluster, purity, torch.Generator().manual_seed(0))
    assert 0.1 < strategy.delta_max_ <= radius < strategy.delta_max_ + 0.02


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tau", [0.0, 0.001, 0.1])
def test_poisson_is_graphlearnings(seed, tau):
    snapshot, truth = pool(seed=seed)
    snapshot = changed(snapshot, embeddings=snapshot.embeddings.double())
    weights = csr_matrix(dense(build_graph(snapshot.embeddings, 8, symmetric=True)))
    model = graphlearning.ssl.laplace(weights, reweighting="poisson", tau=tau, tol=1e-8)
    labeled = snapshot.labeled.numpy()
    learner = active_learner(model, unc_sampling, labeled, snapshot.labels[labeled].numpy(), unc_method="unc_2norm")
    theirs, values = learner.select_queries(batch_size=40, return_acq_vals=True)
    query = ask(PoissonSelector(neighbors=8, tau=tau, decay=False), snapshot, 40, truth)
    norm = dict(zip(snapshot.unlabeled.tolist(), (1 - values).tolist(), strict=True))
    assert query.scores.tolist() == pytest.approx([norm[i] for i in query.indices.tolist()], abs=1e-4)
    assert query.scores.tolist() == pytest.approx([norm[i] for i in theirs], abs=1e-4)
