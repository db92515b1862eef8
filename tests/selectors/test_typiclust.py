import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from lightning_diffal import UNLABELED
from lightning_diffal.selectors import TypiClustSelector, typiclust
from lightning_diffal.selectors.typiclust import cluster_order, mean_distance
from tests.selectors.test_contract import ask, changed, snapshot_of


@pytest.mark.parametrize("neighbors", [1, 5, 20, 100])
def test_the_mean_distance_is_that_of_all_pairs(neighbors):
    points = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    expected = np.sort(cdist(points, points), axis=1)[:, 1 : neighbors + 1].mean(axis=1)
    assert mean_distance(points, neighbors).tolist() == pytest.approx(expected, rel=1e-5)


def test_it_is_the_algorithm_on_the_same_clusters(monkeypatch):
    """The authors' loop over clusters, with all distances, on clusters that are given."""
    snapshot, truth = snapshot_of(n=150, known=12)
    cluster_of = torch.arange(150) * 7 % 11
    monkeypatch.setattr(typiclust, "kmeans", lambda points, clusters, generator: cluster_of)
    points, labels, chosen = snapshot.embeddings.double().numpy(), snapshot.labels.numpy(), []
    order = sorted(range(11), key=lambda c: ((labels[cluster_of == c] >= 0).sum(), -(cluster_of == c).sum(), c))
    for number in range(18):
        members = np.flatnonzero(cluster_of == order[number % 11])
        distance = np.sort(cdist(points[members], points[members]), axis=1)[:, 1:6].mean(axis=1)
        typical = [members[i] for i in distance.argsort() if labels[members[i]] < 0 and members[i] not in chosen]
        chosen.append(typical[0])
    assert ask(TypiClustSelector(neighbors=5), snapshot, 18, truth).indices.tolist() == chosen


def test_it_asks_in_the_middle_of_every_cloud_without_a_label():
    generator = torch.Generator().manual_seed(0)
    center = torch.tensor([[0.0, 0], [20, 0], [0, 20], [20, 20], [40, 0]])
    cloud = torch.arange(200) % 5
    points = center[cloud] + torch.randn(200, 2, generator=generator)
    labels = torch.full((200,), UNLABELED)
    labels[:2] = 0  # clouds 0 and 1
    snapshot, truth = snapshot_of(n=200, classes=2)
    pool = changed(snapshot, embeddings=points, labels=labels)
    indices = ask(TypiClustSelector(), pool, 3, truth).indices
    assert sorted(cloud[indices].tolist()) == [2, 3, 4]
    assert (points[indices] - center[cloud[indices]]).norm(dim=1).max() < 0.8


def test_few_labels_come_before_many_and_large_clusters_before_small():
    cluster_of = torch.tensor([0] * 6 + [1] * 8 + [2] * 9 + [3] * 2)
    labels = torch.full((25,), UNLABELED)
    labels[14] = 0  # in cluster 2
    assert cluster_order(cluster_of, labels, clusters=5, size=7) == [1, 0, 2, 1, 0, 2, 1]
    visits = cluster_order(cluster_of, labels, clusters=5, size=24)
    assert visits[-2:] == [3, 3], "too small to have a typical point"
    assert sorted(visits) == [0] * 6 + [1] * 8 + [2] * 8 + [3] * 2


def test_bad_parameters_are_refused_at_once():
    with pytest.raises(ValueError, match=r"TypiClustSelector\(neighbors=0\)"):
        TypiClustSelector(neighbors=0)
    with pytest.raises(ValueError, match=r"TypiClustSelector\(max_clusters=2.0\)"):
        TypiClustSelector(max_clusters=2.0)
