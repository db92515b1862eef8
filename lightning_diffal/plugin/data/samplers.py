"""Samplers and batches of labeled points."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch.utils.data import BatchSampler, Sampler


class LabeledSampler(Sampler[int]):
    """Draws the labeled points, all of them in every epoch. The callback rewrites it before each fit.

    For DataModules that would rather keep their dataset whole: `DataLoader(dataset, sampler=LabeledSampler())`.
    The order is the same on every rank, as Lightning needs it to share the points among ranks.
    """

    def __init__(self, indices: Sequence[int] = (), *, shuffle: bool = True, seed: int = 0) -> None:
        self.indices, self.shuffle, self.seed, self.epoch = list(indices), shuffle, seed, 0

    def rewrite(self, indices: Sequence[int]) -> None:
        self.indices, self.epoch = list(indices), 0

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        if not self.shuffle:
            return iter(self.indices)
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        self.epoch += 1
        order = torch.randperm(len(self.indices), generator=generator).tolist()
        return iter([self.indices[row] for row in order])


class LabeledBatches(BatchSampler):
    """Batches as the user's loader makes them, with two exceptions for a labeled set that grows.

    A last batch of a single point is added to the one before it: BatchNorm cannot be trained on one point. Fewer
    labeled points than one batch are one batch, also with `drop_last`: else nothing would be trained.
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        held: list[int] | None = None
        for batch in BatchSampler(self.sampler, self.batch_size, self.drops()):
            if held is not None:
                if len(batch) == 1 < self.batch_size:
                    held = held + batch
                    continue
                yield held
            held = batch
        if held is not None:
            yield held

    def __len__(self) -> int:
        points = len(self.sampler)  # type: ignore[arg-type]
        whole, rest = divmod(points, self.batch_size)
        alone = rest == 1 and whole > 0
        return whole + int(rest > 0 and not self.drops() and not alone)

    @property
    def num_draws(self) -> int:
        """Points of an epoch."""
        points = len(self.sampler)  # type: ignore[arg-type]
        return points - points % self.batch_size if self.drops() else points

    def drops(self) -> bool:
        return self.drop_last and len(self.sampler) >= self.batch_size  # type: ignore[arg-type]
