import torch

from lightning_diffal.selectors import RandomSelector
from tests.selectors.test_contract import ask, snapshot_of


def test_every_unlabeled_point_is_as_likely_as_any_other():
    snapshot, truth = snapshot_of(n=20, known=5)
    count = torch.zeros(20)
    for seed in range(600):
        count[ask(RandomSelector(), snapshot, 5, truth, seed=seed).indices] += 1
    # Each is chosen 200 times on average, with a standard deviation of 11.5.
    assert (count[snapshot.labeled] == 0).all()
    assert ((count[snapshot.unlabeled] - 200).abs() < 50).all()


def test_another_seed_gives_another_query():
    snapshot, truth = snapshot_of()
    assert not torch.equal(*(ask(RandomSelector(), snapshot, 9, truth, seed=seed).indices for seed in (0, 1)))
