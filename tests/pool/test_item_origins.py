"""The same items are found through whatever was put around them, against a search by hand."""

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from lightning_diffal.pool.dataset.item_origins import origins_of, positions_in


class Numbered(Dataset):
    def __init__(self, size, first=0):
        self.size, self.first = size, first

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return (id(self), self.first + index)  # which item it is


def positions(pool, other):
    return positions_in(origins_of(pool), origins_of(other)).tolist()


def random_wrapping(bases, generator, depth):
    """Subsets of concatenations of subsets of ..."""
    if depth == 0:
        return bases[int(torch.randint(len(bases), (1,), generator=generator))]
    inner = [random_wrapping(bases, generator, depth - 1) for _ in range(2)]
    whole = ConcatDataset(inner) if depth % 2 else inner[0]
    picked = torch.randint(len(whole), (7,), generator=generator).tolist()
    return Subset(whole, picked)


def test_positions_are_those_of_a_search_by_hand():
    bases = [Numbered(5), Numbered(6), Numbered(4)]
    generator = torch.Generator().manual_seed(0)
    hits = 0
    for _ in range(200):
        pool, other = (random_wrapping(bases, generator, depth) for depth in (2, 3))
        items = [pool[index] for index in range(len(pool))]
        expected = [items.index(item) if item in items else -1 for item in (other[i] for i in range(len(other)))]
        assert positions(pool, other) == expected
        hits += sum(position >= 0 for position in expected)
    assert 200 < hits < 1300, "some are shared and some are not"


def test_rows_of_tensors_are_known_by_their_memory():
    x = torch.randn(10, 4)
    pool = TensorDataset(x, torch.arange(10))
    assert positions(pool, TensorDataset(x[2:5])) == [2, 3, 4]
    assert positions(pool, TensorDataset(x.flip(0))) == [-1] * 10, "a copy is another memory"
    assert positions(pool, TensorDataset(x[:, 1:3])) == list(range(10)), "other columns of the same rows"
    assert positions(TensorDataset(x[4:]), pool) == [-1] * 4 + list(range(6))
    assert positions(pool, Subset(TensorDataset(x), [3, 3])) == [3, 3]
    assert positions(pool, Numbered(3)) == [-1] * 3


def test_equal_objects_are_not_the_same():
    assert positions(Numbered(3), Numbered(3)) == [-1] * 3
