"""The user's own training loaders, restricted to the labeled points.

The dataset is restricted, not the sampler: Lightning rebuilds loaders from `loader.dataset` whenever it injects a
sampler of its own, so that dataset must hold labeled points only.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lightning_diffal.plugin.data.copy_loader import batch_size_of, with_batches
from lightning_diffal.plugin.data.samplers import FilteredSampler, LabeledBatches, LabeledSampler
from lightning_diffal.pool.items import MapStyle, with_label
from lightning_diffal.pool.randomness import seed_of


class LabeledView(Subset[Any]):
    """The labeled points of a dataset, in the order of `indices`."""


class RelabeledView(LabeledView):
    """The same, with the labels of an oracle instead of those in the dataset, if it has any."""

    def __init__(self, dataset: MapStyle, indices: Sequence[int], labels: Sequence[int]) -> None:
        super().__init__(dataset, indices)
        self.labels = labels

    def __getitem__(self, row: Any) -> Any:
        return with_label(self.dataset[self.indices[row]], self.labels[row])

    def __getitems__(self, rows: list[int]) -> list[Any]:
        return [self[row] for row in rows]


def candidates_of(loader: "DataLoader[Any]") -> list[int]:
    """The indices of the dataset that a loader can draw: all, unless its sampler is restricted to some."""
    if isinstance(loader.sampler, SubsetRandomSampler):
        return sorted(map(int, loader.sampler.indices))
    return list(range(len(loader.dataset)))  # type: ignore[arg-type]


def restrict_to_labeled(
    loader: "DataLoader[Any]", labeled: Sequence[int], labels: Sequence[int] | None, round_number: int
) -> "DataLoader[Any]":
    """The user's loader over the labeled points alone: same class, collate, workers and batch size.

    Args:
        labels: Those of an oracle, to be trained on instead of the dataset's own; None keeps those.
        round_number: A generator of the loader is seeded by (its own seed, this).
    """
    batches = loader.batch_sampler
    sampler = getattr(batches, "sampler", loader.sampler)
    size = batch_size_of(loader)
    drop_last = bool(getattr(batches, "drop_last", False))
    generator = fresh_generator(loader.generator, round_number)
    if isinstance(sampler, LabeledSampler):
        sampler.rewrite(labeled)
        batches = LabeledBatches(sampler, size, drop_last)
        return with_batches(loader, loader.dataset, sampler, batches, generator=generator)
    view = LabeledView(loader.dataset, labeled) if labels is None else RelabeledView(loader.dataset, labeled, labels)
    if type(batches) is BatchSampler:
        ours = sampler_like(sampler, view, round_number)
    else:
        ours = FilteredSampler(batches, labeled)
    return with_batches(loader, view, ours, LabeledBatches(ours, size, drop_last), generator=generator)


def sampler_like(sampler: Any, view: LabeledView, round_number: int) -> Sampler[int]:
    """The user's kind of sampler over the labeled points."""
    generator = fresh_generator(getattr(sampler, "generator", None), round_number)
    if type(sampler) is SequentialSampler:
        return SequentialSampler(view)
    if type(sampler) is RandomSampler:
        return RandomSampler(view, sampler.replacement, sampler._num_samples, generator)
    if type(sampler) is SubsetRandomSampler:
        return RandomSampler(view, generator=generator)
    if type(sampler) is WeightedRandomSampler:
        draws = max(1, round(sampler.num_samples * len(view) / len(sampler.weights)))
        weights = sampler.weights[torch.tensor(view.indices)]
        return WeightedRandomSampler(weights, draws, sampler.replacement, generator)  # type: ignore[arg-type]
    if type(sampler) is DistributedSampler:
        shuffle, seed, drop_last = sampler.shuffle, sampler.seed, sampler.drop_last
        return DistributedSampler(view, sampler.num_replicas, sampler.rank, shuffle, seed, drop_last)
    return FilteredSampler(sampler, view.indices)


def fresh_generator(generator: torch.Generator | None, round_number: int) -> torch.Generator | None:
    """A generator that depends on the user's seed and the round, not on what was drawn before."""
    if generator is None:
        return None
    return torch.Generator(generator.device).manual_seed(seed_of(generator.initial_seed(), round_number))
