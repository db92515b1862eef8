"""Who is labeled: known by one owner, changed by one door."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from lightning_diffal import UNLABELED
from lightning_diffal.pool.dataset.fingerprint import is_random, take_fingerprint
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.oracle import DatasetOracle, num_classes_of, targets_of
from lightning_diffal.pool.randomness import seed_of, temporary_seed


def test_revealing_is_the_only_way_to_change_a_pool():
    pool = LabelPool(5)
    pool.reveal([3, 1], [0, 2])
    assert pool.labels.tolist() == [UNLABELED, 2, UNLABELED, 0, UNLABELED]
    assert (pool.labeled.tolist(), pool.unlabeled.tolist()) == ([1, 3], [0, 2, 4])
    pool.labels[0] = 7
    assert pool.labels[0] == UNLABELED
    assert repr(pool) == "LabelPool(2 of 5 points labeled)"


@pytest.mark.parametrize(
    ("indices", "labels", "message"),
    [
        ([0, 5], [0, 0], "index 5 is out of range: the pool has 5 points"),
        ([-1], [0], "index -1 is out of range"),
        ([0, 3], [0, 1], "point 3 has a label already, 0"),
        ([0, 0], [1, 1], "a point is named twice"),
        ([0, 1], [1], "2 points and 1 labels"),
        ([0, 1], [1, -1], "label -1 is not a class"),
    ],
)
def test_one_wrong_label_reveals_none(indices, labels, message):
    pool = LabelPool(5)
    pool.reveal([3], [0])
    with pytest.raises(ValueError, match=message):
        pool.reveal(indices, labels)
    assert pool.labeled.tolist() == [3]


class Noisy(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(2) + random.random() + np.random.rand(), y


def test_a_fingerprint_knows_points_from_other_points_and_reads_no_labels():
    x, y = torch.randn(50, 2), torch.arange(50) % 3
    same = take_fingerprint(TensorDataset(x, y), 50)
    assert take_fingerprint(TensorDataset(x, 1 - y), 50) == same
    assert take_fingerprint(TensorDataset(x + 1e-3, y), 50) != same
    assert take_fingerprint(TensorDataset(x.flip(0), y), 50) != same
    assert take_fingerprint(Subset(TensorDataset(x, y), range(49)), 49) != same


def test_random_augmentation_is_told_and_does_not_change_a_fingerprint():
    x, y = torch.randn(50, 2), torch.arange(50) % 3
    assert not is_random(TensorDataset(x, y), 50)
    assert is_random(Noisy(x, y), 50)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert take_fingerprint(Noisy(x, y), 50) == take_fingerprint(Noisy(x, y), 50)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_random_numbers_go_on_where_they_were():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    first = torch.rand(1)
    with temporary_seed(5):
        inside = torch.rand(1)
    with temporary_seed(5):
        assert torch.equal(torch.rand(1), inside)
    assert torch.equal(torch.cat([first, torch.rand(1)]), expected)


def test_a_temporary_seed_is_not_kept_for_devices_that_are_used_later():
    kept = torch.cuda._lazy_seed_tracker  # of torch.manual_seed, for the first use of a GPU
    torch.manual_seed(1)
    before = kept.get_calls()
    with temporary_seed(5):
        torch.rand(1)
    assert kept.get_calls() == before
    torch.manual_seed(1)
    assert kept.get_calls() != before, "the check can fail"


def test_seeds_of_rounds_and_runs_do_not_meet():
    seeds = {seed_of(seed, number) for seed in range(50) for number in range(50)}
    assert len(seeds) == 2500
    assert max(seeds) < 2**32


def test_an_oracle_reads_targets_through_subsets_and_not_where_they_are_transformed():
    base = TensorDataset(torch.randn(10, 2), torch.arange(10) % 4)
    picked = Subset(Subset(base, [9, 8, 7, 6]), [3, 0])
    assert DatasetOracle(picked)([0, 1]) == [6 % 4, 9 % 4]
    assert DatasetOracle(base).count_classes() == 4

    class Named:
        targets, target_transform = [0, 1, 1], staticmethod(lambda y: 1 - y)

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return torch.zeros(2), self.target_transform(self.targets[index])

    assert targets_of(Named()) is None
    assert DatasetOracle(Named())([0, 1, 2]) == [1, 0, 0]


def test_classes_are_counted_without_reading_a_label():
    class Listed(TensorDataset):
        classes = ("cat", "dog", "bird")

        @property
        def targets(self):
            raise AssertionError("no label is read")

    dataset = Listed(torch.randn(4, 2), torch.zeros(4).long())
    assert num_classes_of(Subset(dataset, [0, 1])) == 3
    assert num_classes_of(TensorDataset(torch.randn(4, 2), torch.arange(4))) is None
