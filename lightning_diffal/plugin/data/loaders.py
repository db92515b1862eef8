"""The user's own training loaders, restricted to the labeled points.

The dataset is restricted, not the sampler: Lightning rebuilds loaders from `loader.dataset` whenever it injects a
sampler of its own, so that dataset must hold labeled points only.
"""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lightning_diffal.plugin.data.copy_loader import batch_size_of, update_saved_arguments, with_batches, with_dataset
from lightning_diffal.plugin.data.samplers import LabeledBatches, LabeledSampler
from lightning_diffal.plugin.data.user_samplers import UserSampler, scaled_draws, usual_batch_size
from lightning_diffal.pool.dataset.items import BY_FORMAT, LabelField, MapStyle
from lightning_diffal.pool.randomness import seed_of


class LabeledView(Subset[Any]):
    """The labeled points of a dataset, in the order of `indices`."""


class RelabeledView(LabeledView):
    """The same, with the labels of an oracle instead of those in the dataset, if it has any."""

    def __init__(
        self, dataset: MapStyle, indices: Sequence[int], labels: Sequence[int], label_field: LabelField
    ) -> None:
        super().__init__(dataset, indices)
        self.labels, self.label_field = labels, label_field

    def __getitem__(self, row: Any) -> Any:
        return self.label_field.replace(self.dataset[self.indices[row]], self.labels[row])

    def __getitems__(self, rows: list[int]) -> list[Any]:
        return [self[row] for row in rows]


class AnsweredDataset(Dataset[Any]):
    """A whole dataset, where a LabeledSampler draws from it, with the labels of an oracle by index."""

    def __init__(self, dataset: MapStyle, labels: dict[int, int], label_field: LabelField) -> None:
        self.dataset, self.labels, self.label_field = dataset, labels, label_field

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.label_field.replace(self.dataset[index], self.labels[int(index)])


class UnlabeledView(Dataset[Any]):
    """All points of a dataset, with -1 for their labels."""

    def __init__(self, dataset: MapStyle, label_field: LabelField) -> None:
        self.dataset, self.label_field = dataset, label_field

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.label_field.hide(self.dataset[index])


def hide_labels(loader: "DataLoader[Any]", label_field: LabelField) -> "DataLoader[Any]":
    """The user's loader as it is, but for the labels."""
    view = UnlabeledView(loader.dataset, label_field)
    fresh = with_dataset(loader, view)
    update_saved_arguments(fresh, view)
    return fresh


def candidates_of(loader: "DataLoader[Any]") -> list[int]:
    """The indices of the dataset that a loader can draw: all, unless its sampler is restricted to some."""
    if isinstance(loader.sampler, SubsetRandomSampler):
        return sorted(map(int, loader.sampler.indices))
    return list(range(len(loader.dataset)))  # type: ignore[arg-type]


def restrict_to_labeled(
    loader: "DataLoader[Any]",
    labeled: Sequence[int],
    labels: Sequence[int] | None,
    round_number: int,
    label_field: LabelField = BY_FORMAT,
) -> "DataLoader[Any]":
    """The user's loader over the labeled points alone: same class, collate, workers and batch size.

    Args:
        labels: Those of an oracle, to be trained on instead of the dataset's own; None keeps those.
        round_number: A generator of the loader is seeded by (its own seed, this).
    """
    batches = loader.batch_sampler
    sampler = getattr(batches, "sampler", loader.sampler)
    drop_last = bool(getattr(batches, "drop_last", False))
    generator = fresh_generator(loader.generator, round_number)
    dataset = loader.dataset
    if isinstance(sampler, LabeledSampler):
        sampler.rewrite(labeled)
        ours: Sampler[int] = sampler
        size = batch_size_of(loader)
        if labels is not None:
            dataset = AnsweredDataset(dataset, dict(zip(labeled, labels, strict=True)), label_field)
    else:
        view = LabeledView(dataset, labeled)
        if labels is not None:
            view = RelabeledView(dataset, labeled, labels, label_field)
        if type(batches) is BatchSampler:
            ours, size = sampler_like(sampler, view, round_number), batch_size_of(loader)
        else:
            size = usual_batch_size(batches) or batch_size_of(loader)
            ours = UserSampler(batches, labeled, len(dataset), round_number, batch_size=size)  # type: ignore[arg-type]
        dataset = view
    fresh = LabeledBatches(ours, size, drop_last)
    warn_of_few_draws(fresh, sampler if type(batches) is BatchSampler else batches, len(labeled))
    return with_batches(loader, dataset, ours, fresh, generator=generator)


def sampler_like(sampler: Any, view: LabeledView, round_number: int) -> Sampler[int]:
    """The user's kind of sampler over the labeled points."""
    generator = fresh_generator(getattr(sampler, "generator", None), round_number)
    size = len(view.dataset)  # type: ignore[arg-type]
    if type(sampler) is SequentialSampler:
        return SequentialSampler(view)
    if type(sampler) is RandomSampler:
        draws = sampler._num_samples
        draws = draws and scaled_draws(draws, size, len(view))
        return RandomSampler(view, sampler.replacement, draws, generator)
    if type(sampler) is SubsetRandomSampler:
        return RandomSampler(view, generator=generator)
    if type(sampler).__iter__ is WeightedRandomSampler.__iter__:
        return weighted_sampler(sampler, view, generator)
    if type(sampler) is DistributedSampler:
        shuffle, seed, drop_last = sampler.shuffle, sampler.seed, sampler.drop_last
        return DistributedSampler(view, sampler.num_replicas, sampler.rank, shuffle, seed, drop_last)
    return UserSampler(sampler, view.indices, size, round_number)


def weighted_sampler(
    sampler: WeightedRandomSampler, view: LabeledView, generator: torch.Generator | None
) -> WeightedRandomSampler:
    """Draws labeled points by the user's weights.

    Points of one weight are taken for a class, whose share of all draws stays what it is over the whole pool.
    """
    weights = torch.as_tensor(sampler.weights, dtype=torch.double)
    indices = torch.tensor(view.indices)
    values, group = weights.unique(return_inverse=True)
    ours = weights[indices]
    if 1 < len(values) <= len(weights) // 10:
        labeled = group[indices].bincount(minlength=len(values)).clamp(min=1)
        ours = (values * group.bincount(minlength=len(values)) / labeled)[group[indices]]
    positive = int((ours > 0).sum())
    if positive == 0:
        raise ValueError(
            f"WeightedRandomSampler: all {len(view)} labeled points have weight 0, so none can be drawn. Weights are "
            "needed that are positive for some of the points labeled first (initial=...)."
        )
    draws = scaled_draws(sampler.num_samples, len(weights), len(view))
    draws = draws if sampler.replacement else min(draws, positive)
    return WeightedRandomSampler(ours, draws, sampler.replacement, generator)  # type: ignore[arg-type]


def warn_of_few_draws(batches: LabeledBatches, sampler: Any, num_labeled: int) -> None:
    if 2 * batches.num_draws < num_labeled:
        rank_zero_warn(
            f"An epoch draws {batches.num_draws} of the {num_labeled} labeled points: {type(sampler).__name__} in "
            f"batches of {batches.batch_size}, drop_last={batches.drop_last}. More draws or more epochs train on all."
        )


def fresh_generator(generator: torch.Generator | None, round_number: int) -> torch.Generator | None:
    """A generator that depends on the user's seed and the round, not on what was drawn before."""
    if generator is None:
        return None
    return torch.Generator(generator.device).manual_seed(seed_of(generator.initial_seed(), round_number))
