import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from lightning_diffal.selectors import ProbCoverSelector
from lightning_diffal.selectors.probcover import pure_radius
from tests.selectors.test_contract import ask, changed, distant_classes, snapshot_of


def greedy_cover(points, labeled, size, radius):
    """Algorithm 1 of the paper on the whole graph of balls."""
    edges = cdist(points, points) <= radius
    taken, chosen, counts = list(labeled), [], []
    edges[:, edges[taken].any(axis=0)] = False
    for _ in range(size):
        count = edges.sum(axis=1)
        count[taken] = -1
        chosen.append(int(count.argmax()))
        counts.append(int(count.max()))
        taken.append(chosen[-1])
        edges[:, edges[chosen[-1]]] = False
    return chosen, counts


@pytest.mark.parametrize("radius", [0.0, 0.5, 1.5, 3.0, 100.0])
@pytest.mark.parametrize("n", [150, 2500])  # the larger pool is counted in several tiles
def test_it_is_the_greedy_cover_of_all_pairs(radius, n):
    snapshot, truth = snapshot_of(n=n, known=8)
    points = snapshot.embeddings.double().numpy()
    chosen, counts = greedy_cover(points, snapshot.labeled.tolist(), 40, radius)
    query = ask(ProbCoverSelector(radius=radius), snapshot, 40, truth)
    assert query.indices.tolist() == chosen
    assert (-query.scores).tolist() == counts


@pytest.mark.parametrize("dimensions", [3, 20, 200])
@pytest.mark.parametrize("ratio", [10, 1000, 100_000])
def test_near_points_are_resolved_in_distant_classes(dimensions, ratio):
    points, radius = distant_classes(300, dimensions, ratio), 0.8 * (2 * dimensions) ** 0.5
    snapshot, truth = snapshot_of(n=300, known=10, embeddings=points)
    query = ask(ProbCoverSelector(radius=radius), snapshot, 60, truth)
    chosen, counts = greedy_cover(points.double().numpy(), snapshot.labeled.tolist(), 60, radius)
    assert query.indices.tolist() == chosen
    assert (-query.scores).tolist() == counts


def test_copies_cover_each_other_with_no_radius_at_all():
    snapshot, truth = snapshot_of(n=60, known=0)
    points = snapshot.embeddings.clone() + 100
    points[40:] = points[7]
    query = ask(ProbCoverSelector(radius=0.0), changed(snapshot, embeddings=points), 2, truth)
    assert query.indices.tolist() == [7, 0]
    assert query.scores.tolist() == [-21, -1]


@pytest.mark.parametrize("purity", [0.5, 0.9, 0.95])
def test_the_radius_is_the_largest_with_pure_balls(purity):
    generator = torch.Generator().manual_seed(0)
    points, cluster = torch.randn(200, 3, generator=generator), torch.randint(3, (200,), generator=generator)
    points[:, 0] += 3 * cluster
    radius = pure_radius(points, cluster, purity, generator)
    distance, other_cluster = cdist(points, points), (cluster[:, None] != cluster).numpy()

    def purity_of(delta):
        return 1 - ((distance <= delta) & other_cluster).any(axis=1).mean()

    assert purity_of(radius * 0.9999) >= purity > purity_of(radius * 1.0001)


def test_without_another_cluster_a_ball_holds_everything():
    radius = pure_radius(torch.randn(9, 2), torch.zeros(9, dtype=torch.long), 0.95, torch.Generator().manual_seed(0))
    assert radius == float("inf")


def test_counting_on_a_part_of_the_pool_covers_nearly_as_much():
    snapshot, truth = snapshot_of(n=2000, known=0)
    near = cdist(snapshot.embeddings, snapshot.embeddings) <= 1.5

    def covered(counted):
        indices = ask(ProbCoverSelector(radius=1.5, counted=counted), snapshot, 10, truth).indices
        return near[indices].any(axis=0).mean()

    assert covered(500) > 0.9 * covered(2000) > 0.9 * np.sort(near.mean(axis=1))[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": -1.0}, r"ProbCoverSelector\(radius=-1.0\): a distance"),
        ({"radius": float("nan")}, r"ProbCoverSelector\(radius=nan\)"),
        ({"purity": 1.0}, r"ProbCoverSelector\(purity=1.0\): a fraction"),
        ({"counted": 0}, r"ProbCoverSelector\(counted=0\)"),
    ],
)
def test_bad_parameters_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        ProbCoverSelector(**arguments)
