"""Samplers and batch samplers of the user's own, over the labeled points."""

import copy
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor
from torch.utils.data import Sampler

from lightning_diffal.plugin.data.groups import find_groups
from lightning_diffal.pool.randomness import seed_of, temporary_seed

# Draws of the whole pool, relative to its size, after which a sampler that hardly draws labeled points is replaced.
MOST_DRAWS = 20


class UserSampler(Sampler[int]):
    """Rows of labeled points, drawn as a sampler or batch sampler of the user's own draws from the whole pool.

    Where it knows groups of points, such as classes, each draw of an unlabeled point is replaced by a labeled one of
    the same group: batches keep their balance. Else unlabeled points are left out, and the sampler is asked again
    until there are as many draws as before.

    Args:
        size: Of the pool.
        batch_size: Of a batch sampler.
    """

    def __init__(
        self, source: Any, labeled: Sequence[int], size: int, round_number: int, batch_size: int | None = None
    ) -> None:
        self.source, self.size = source, size
        self.row_of = {index: row for row, index in enumerate(labeled)}
        self.seed, self.epoch = seed_of(round_number, len(labeled)), 0
        self.draws = self.count_draws(batch_size)
        self.groups = find_groups(source, size, self.draws_each_once)
        self.members: dict[Any, list[int]] = {}
        for index, row in self.row_of.items():
            if self.groups is not None:
                self.members.setdefault(self.groups.get(index), []).append(row)

    def count_draws(self, batch_size: int | None) -> int:
        try:
            draws = len(self.source) * (batch_size or 1)
        except (TypeError, NotImplementedError):
            return len(self.row_of)
        return scaled_draws(draws, self.size, len(self.row_of), batch_size or 1)

    def draws_each_once(self) -> bool:
        """Whether an epoch is a permutation of the pool."""
        with temporary_seed(0):
            drawn = list(islice(flat(copied(self.source)), self.size + 1))
        return len(set(drawn)) == len(drawn) and len(drawn) >= self.size - 1

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed((self.seed + self.epoch) % 2**63)
        self.epoch += 1
        left, most = self.draws, MOST_DRAWS * max(self.size, self.draws)
        while left and most > 0:
            before = most
            for index in flat(self.source):
                most -= 1
                row = self.row_of.get(index)
                if row is None and self.groups is not None:
                    # A group without labels has no share yet.
                    rows = self.members.get(self.groups.get(index)) or range(len(self.row_of))
                    row = rows[int(torch.randint(len(rows), (), generator=generator))]
                if row is not None:
                    yield row
                    left -= 1
                if left == 0 or most <= 0:
                    break
            if most == before:
                break  # it draws nothing
        # A sampler that draws some points only, and few of them labeled.
        yield from torch.randint(len(self.row_of), (left,), generator=generator).tolist()

    def set_epoch(self, epoch: int) -> None:
        for sampler in (self.source, getattr(self.source, "sampler", self.source)):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)


def scaled_draws(draws: int, size: int, num_labeled: int, batch_size: int = 1) -> int:
    """The number of draws over the labeled points: the user's, but passes over the pool are passes over them.

    Where ranks share the pool, a rank's share of a pass is one too.
    """
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    for share in {1, world}:
        whole, labeled = -(-size // share), -(-num_labeled // share)
        passes = round(draws / whole)
        if passes and abs(draws - passes * whole) < batch_size:
            return passes * labeled
    return draws


def usual_batch_size(batches: Any) -> int | None:
    """The size of most of the first batches of a batch sampler that does not say it."""
    if isinstance(getattr(batches, "batch_size", None), int):
        return int(batches.batch_size)
    with temporary_seed(0):
        sizes = Counter(len(batch) for batch in islice(copied(batches), 16))
    return sizes.most_common(1)[0][0] if sizes else None


def copied(sampler: Any) -> Any:
    """A copy to draw from, so that the user's random numbers go on where they were. Data is not copied."""
    fresh = copy.copy(sampler)
    for name, value in getattr(fresh, "__dict__", {}).items():
        if isinstance(value, torch.Generator):
            generator = torch.Generator(value.device)
            generator.set_state(value.get_state())
            vars(fresh)[name] = generator
        elif isinstance(value, (random.Random, np.random.Generator, np.random.RandomState)):
            vars(fresh)[name] = copy.deepcopy(value)
        elif isinstance(value, Sampler):
            vars(fresh)[name] = copied(value)
    return fresh


def flat(source: Any) -> Iterator[int]:
    """The indices that a sampler or batch sampler draws."""
    for drawn in source:
        if isinstance(drawn, (Sequence, Tensor)) or hasattr(drawn, "__array__"):
            single = getattr(drawn, "ndim", 1) == 0
            yield from [int(drawn)] if single else map(int, drawn)
        elif isinstance(drawn, Mapping):
            raise TypeError(f"A batch sampler draws {type(drawn).__name__}: indices of the dataset are needed.")
        else:
            yield int(drawn)
