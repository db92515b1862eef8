import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from lightning_diffal.selectors import CoresetSelector
from tests.selectors.test_contract import ask, changed, distant_classes, snapshot_of


def greedy(points, labeled, size):
    """Greedy k-center from the distances of all points to all centers."""
    chosen, gap = [], cdist(points, points[labeled]).min(axis=1)
    gap[labeled] = -1
    for _ in range(size):
        chosen.append(int(gap.argmax()))
        gap = np.minimum(gap, cdist(points, points[chosen[-1:]])[:, 0])
        gap[chosen[-1]] = -1
    return chosen


@pytest.mark.parametrize("seed", range(3))
def test_it_is_greedy_k_center_by_brute_force(seed):
    snapshot, truth = snapshot_of(n=120, known=10, seed=seed)
    points = snapshot.embeddings.double().numpy()
    query = ask(CoresetSelector(), snapshot, 30, truth)
    assert query.indices.tolist() == greedy(points, snapshot.labeled.tolist(), 30)
    gap = cdist(points[query.indices.numpy()[:1]], points[snapshot.labeled.numpy()]).min()
    assert -query.scores[0].item() == pytest.approx(gap, rel=1e-5)
    assert (query.scores.diff() >= 0).all(), "each is nearer than the one before"


def test_a_pool_of_several_tiles_is_chosen_from_as_by_brute_force():
    points = torch.randn(12_000, 100, generator=torch.Generator().manual_seed(0))
    snapshot, truth = snapshot_of(n=12_000, known=150, embeddings=points)
    query = ask(CoresetSelector(), snapshot, 10, truth)
    assert query.indices.tolist() == greedy(points.double().numpy(), snapshot.labeled.tolist(), 10)


@pytest.mark.parametrize(("dimensions", "offset"), [(2, 0.0), (300, 0.0), (5, 1000.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dimensions_offset_and_dtype_do_not_change_the_choice_of_brute_force(dimensions, offset, dtype):
    points = torch.randn(200, dimensions, generator=torch.Generator().manual_seed(0)).to(dtype) + offset
    snapshot, truth = snapshot_of(n=200, known=40, embeddings=points)
    query = ask(CoresetSelector(), snapshot, 60, truth)
    assert query.indices.tolist() == greedy(points.double().numpy(), snapshot.labeled.tolist(), 60)


@pytest.mark.parametrize("dimensions", [3, 20, 200])
@pytest.mark.parametrize("ratio", [10, 1000, 100_000])
def test_near_points_are_resolved_in_distant_classes(dimensions, ratio):
    points = distant_classes(300, dimensions, ratio)
    snapshot, truth = snapshot_of(n=300, known=100, embeddings=points)
    query = ask(CoresetSelector(), snapshot, 60, truth)
    assert query.indices.tolist() == greedy(points.double().numpy(), snapshot.labeled.tolist(), 60)


def test_distances_come_in_the_unit_of_the_embeddings():
    snapshot, truth = snapshot_of()
    large = changed(snapshot, embeddings=snapshot.embeddings * 2.0**100)
    near, far = (ask(CoresetSelector(), pool, 7, truth).scores for pool in (snapshot, large))
    assert torch.equal(near * 2.0**100, far)


def test_the_radius_is_within_twice_the_smallest():
    points = torch.randn(9, 2, generator=torch.Generator().manual_seed(1))
    snapshot, truth = snapshot_of(n=9, known=0, embeddings=points, logits=None, stochastic=None)
    distance = cdist(points, points)

    def radius(centers):
        return distance[:, centers].min(axis=1).max()

    best = min(radius([i, j, k]) for i in range(9) for j in range(i) for k in range(j))
    assert radius(ask(CoresetSelector(), snapshot, 3, truth).indices.tolist()) <= 2 * best


def test_without_labels_it_begins_in_the_middle():
    snapshot, truth = snapshot_of(known=0)
    points = snapshot.embeddings.double().numpy()
    middle = int(np.linalg.norm(points - points.mean(axis=0), axis=1).argmin())
    chosen = ask(CoresetSelector(), snapshot, 6, truth).indices.tolist()
    assert chosen == [middle, *greedy(points, [middle], 5)]


def test_with_one_point_left_it_is_chosen_however_many_centers_coincide_with_it():
    snapshot, truth = snapshot_of(n=6, known=5, embeddings=torch.ones(6, 3))
    query = ask(CoresetSelector(), snapshot, 3, truth)
    assert query.indices.tolist() == snapshot.unlabeled.tolist()
    assert query.scores.tolist() == [0]


def test_coinciding_points_come_last_and_by_their_index():
    snapshot, truth = snapshot_of(n=30, known=0)
    points = snapshot.embeddings.clone()
    points[10:20] = points[3]
    labels = snapshot.labels.clone()
    labels[3] = 0
    chosen = ask(CoresetSelector(), changed(snapshot, embeddings=points, labels=labels), 29, truth).indices
    assert chosen[-10:].tolist() == list(range(10, 20))
