"""UHerding against the same greedy choice with all kernels in one dense matrix."""

import pytest
import torch
from scipy.spatial.distance import cdist, pdist

from lightning_diffal import UNLABELED
from lightning_diffal.selectors import UHerdingSelector
from tests.selectors.test_contract import changed, snapshot_of


def dense_query(snapshot, size, temperature=1.0):
    points = snapshot.embeddings.double().numpy()
    points = points / (points**2).sum(axis=1, keepdims=True) ** 0.5
    known = (snapshot.labels != UNLABELED).numpy()
    distances = pdist(points[known])
    distances = distances[distances > 1e-6]
    width = distances.min() if len(distances) else 1.0
    kernel = torch.from_numpy(cdist(points, points, "sqeuclidean") / -(width**2)).exp()
    unsure = torch.ones(len(points), dtype=torch.float64)
    if snapshot.logits is not None:
        ordered = (snapshot.logits.double() / temperature).softmax(dim=1).sort(dim=1, descending=True).values
        unsure = 1 - (ordered[:, 0] - ordered[:, 1])
    unsure[known] = 0
    covered = kernel[:, known].amax(dim=1) if known.any() else torch.zeros_like(unsure)
    chosen = []
    for _ in range(size):
        gain = (unsure[:, None] * (kernel - covered[:, None]).clamp_min(0)).sum(dim=0) / unsure.sum()
        gain[known] = -1
        best = int((gain * 2**40).round().argmax())
        known[best] = True
        chosen.append(best)
        covered = torch.maximum(covered, kernel[:, best])
    return chosen


def repeated(snapshot):
    return changed(snapshot, embeddings=snapshot.embeddings[torch.arange(len(snapshot.labels)) // 3])


CASES = {
    "few labels": (snapshot_of(n=300, known=5)[0], 20, 1.0),
    "many labels": (snapshot_of(n=300, known=100)[0], 20, 1.0),
    "a temperature": (snapshot_of(n=200, known=9)[0], 10, 4.0),
    "no labels": (snapshot_of(n=200, known=0)[0], 10, 1.0),
    "no model": (changed(snapshot_of(n=200, known=9)[0], logits=None), 10, 1.0),
    "coinciding points": (repeated(snapshot_of(n=120, known=30)[0]), 15, 1.0),
    "all labeled but five": (snapshot_of(n=60, known=55)[0], 5, 1.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_query_is_that_of_computing_every_gain_every_time(case):
    snapshot, size, temperature = CASES[case]
    query = UHerdingSelector(temperature=temperature)(snapshot, size)
    assert query.indices.tolist() == dense_query(snapshot, size, temperature)
    assert query.scores.diff().ge(0).all(), "gains fall"


def test_a_sum_over_part_of_the_pool_covers_nearly_as_much():
    snapshot, _ = snapshot_of(n=2000, known=0)
    points = torch.nn.functional.normalize(snapshot.embeddings.double())

    def covered(selector):
        distance = torch.cdist(points, points[selector(snapshot, 10).indices])
        return float((-distance.square()).exp().amax(dim=1).mean())

    assert covered(UHerdingSelector(counted=300)) > 0.97 * covered(UHerdingSelector())


def test_it_takes_features_unless_told_otherwise():
    snapshot, _ = snapshot_of(n=100)
    other = torch.randn(100, 4, generator=torch.Generator().manual_seed(5))
    both = changed(snapshot, features=other)
    assert UHerdingSelector()(both, 6).indices.tolist() == dense_query(changed(snapshot, embeddings=other), 6)
    assert UHerdingSelector(on="embeddings")(both, 6).indices.tolist() == dense_query(snapshot, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0}, r"UHerdingSelector\(temperature=0\): a positive number is needed"),
        ({"counted": 0}, r"UHerdingSelector\(counted=0\)"),
        ({"on": "pixels"}, r'UHerdingSelector\(on=\'pixels\'\): "embeddings" or "features" is needed'),
    ],
)
def test_bad_parameters_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        UHerdingSelector(**arguments)
