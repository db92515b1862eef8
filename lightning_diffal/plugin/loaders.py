"""The user's own training loaders, narrowed to the labeled points.

Not the sampler is narrowed but the dataset under it: Lightning rebuilds loaders from `loader.dataset` whenever it
injects a sampler of its own, and what it draws from then must be narrow already.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lightning_diffal.plugin.samplers import LabeledBatches, LabeledSampler, UsersOrder
from lightning_diffal.pool.fingerprint import length_of
from lightning_diffal.pool.items import MapStyle, with_label
from lightning_diffal.pool.randomness import seed_of

# Batches of the embedding pass where the user's loader has no batch size to go by.
POOL_BATCH = 64


class LabeledView(Subset[Any]):
    """The labeled points of a dataset, in the order of `indices`."""


class RelabeledView(LabeledView):
    """The same, with the labels an oracle gave instead of those in the dataset, if it has any."""

    def __init__(self, dataset: MapStyle, indices: Sequence[int], labels: Sequence[int]) -> None:
        super().__init__(dataset, indices)
        self.labels = labels

    def __getitem__(self, place: Any) -> Any:
        return with_label(self.dataset[self.indices[place]], self.labels[place])

    def __getitems__(self, places: list[int]) -> list[Any]:
        return [self[place] for place in places]


def leaves(loaders: Any) -> list[Any]:
    """The single loaders of a loader, list, dictionary or CombinedLoader."""
    found: list[Any] = []
    mapped(loaders, found.append)
    return found


def mapped(loaders: Any, change: Callable[[Any], Any]) -> Any:
    """The same arrangement of loaders with each single one changed."""
    if hasattr(loaders, "flattened"):  # a CombinedLoader of either namespace
        combined = copy.copy(loaders)
        combined.flattened = [change(loader) for loader in loaders.flattened]
        return combined
    if isinstance(loaders, Mapping):
        return {name: mapped(loader, change) for name, loader in loaders.items()}
    if isinstance(loaders, (list, tuple)):
        parts = [mapped(loader, change) for loader in loaders]
        return type(loaders)(*parts) if hasattr(loaders, "_fields") else type(loaders)(parts)
    return change(loaders)


def check_loader(loader: Any) -> None:
    """Refuse a training loader that cannot be narrowed."""
    if not isinstance(loader, DataLoader):
        raise MisconfigurationException(
            f"The training loader is a {type(loader).__name__}. Active learning needs a torch DataLoader over a "
            "dataset with indices."
        )
    name = type(loader.dataset).__name__
    if isinstance(loader.dataset, IterableDataset):
        raise MisconfigurationException(
            f"The training dataset {name} is an IterableDataset: its points have no indices to ask about. A map-style "
            "dataset, with __getitem__ and __len__, is needed."
        )
    if length_of(loader.dataset) is None:
        raise MisconfigurationException(f"The training dataset {name} has no __len__. The size of the pool is needed.")
    if loader.batch_sampler is None:
        raise MisconfigurationException(
            f"The training loader over {name} has batch_size=None: the dataset makes batches itself, and single points "
            "have no indices. A DataLoader that makes the batches is needed."
        )


def candidates_of(loader: "DataLoader[Any]") -> list[int]:
    """The indices of the dataset that a loader may ever draw: all, unless its sampler keeps to a part of them."""
    if isinstance(loader.sampler, SubsetRandomSampler):
        return sorted(map(int, loader.sampler.indices))
    return list(range(len(loader.dataset)))  # type: ignore[arg-type]


def narrowed(
    loader: "DataLoader[Any]", labeled: Sequence[int], labels: Sequence[int] | None, round_number: int
) -> "DataLoader[Any]":
    """The user's loader over the labeled points alone: same class, collate, workers and batch size.

    Args:
        labels: What an oracle said of them, to be trained on instead of the dataset's own; None keeps those.
        round_number: Where the loader has a generator of its own, it starts from (its seed, this).
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
    ours = sampler_like(sampler, view, round_number) if type(batches) is BatchSampler else UsersOrder(batches, labeled)
    return with_batches(loader, view, ours, LabeledBatches(ours, size, drop_last), generator=generator)


def sampler_like(sampler: Any, view: LabeledView, round_number: int) -> Sampler[int]:
    """The sampler that does over the labeled points what the user's does over all."""
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
    return UsersOrder(sampler, view.indices)


def batch_size_of(loader: "DataLoader[Any]") -> int:
    size = getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size
    return size if isinstance(size, int) else POOL_BATCH


def fresh_generator(generator: torch.Generator | None, round_number: int) -> torch.Generator | None:
    """A generator that depends on the user's seed and the round, not on what was drawn before."""
    if generator is None:
        return None
    return torch.Generator(generator.device).manual_seed(seed_of(generator.initial_seed(), round_number))


def pool_loader(loader: "DataLoader[Any]", rows: Sequence[int], batch_size: int | None) -> "DataLoader[Any]":
    """The same loader once through the given points, in that order and none left out."""
    whole = len(rows) == len(loader.dataset) and list(rows) == list(range(len(rows)))  # type: ignore[arg-type]
    dataset = loader.dataset if whole else Subset(loader.dataset, rows)
    sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
    batches = BatchSampler(sampler, batch_size or batch_size_of(loader), drop_last=False)
    return with_batches(loader, dataset, sampler, batches, generator=None, persistent_workers=False)


def with_dataset(loader: "DataLoader[Any]", dataset: MapStyle) -> "DataLoader[Any]":
    """A copy of a loader over another dataset of the same points."""
    fresh = copy.copy(loader)
    vars(fresh).update(dataset=dataset, _iterator=None)
    return fresh


def with_batches(
    loader: "DataLoader[Any]",
    dataset: MapStyle,
    sampler: Sampler[int],
    batches: "BatchSampler",
    **changes: Any,
) -> "DataLoader[Any]":
    """A copy of a loader, whatever its class and the arguments of its constructor, over another dataset."""
    fresh = copy.copy(loader)
    # Not by setattr: DataLoader refuses it, since workers would not know. The copy has none yet.
    vars(fresh).update(dataset=dataset, sampler=sampler, batch_sampler=batches, _iterator=None, **changes)
    remember_dataset(fresh, dataset)
    return fresh


def remember_dataset(loader: "DataLoader[Any]", dataset: MapStyle) -> None:
    """Let Lightning find the narrow dataset, too, among the constructor's arguments that it has noted down.

    It notes them in hooks like `train_dataloader`, to build the loader again with a distributed sampler. There is no
    public way in; should the names change, `check_training_loaders` stops the run.
    """
    notes = vars(loader)
    if "__pl_saved_args" not in notes:
        return
    names, kwargs = notes["__pl_saved_arg_names"], dict(notes["__pl_saved_kwargs"])
    if "dataset" in names:
        place = names.index("dataset")
        notes["__pl_saved_args"] = (*notes["__pl_saved_args"][:place], dataset, *notes["__pl_saved_args"][place + 1 :])
    elif "dataset" in kwargs:
        kwargs["dataset"] = dataset
    notes["__pl_saved_kwargs"], notes["__dataset"] = kwargs, dataset


def check_training_loaders(loaders: Any, labeled: Sequence[int], others: Sequence[MapStyle]) -> None:
    """Stop a run whose loaders, as Lightning will really use them, could draw an unlabeled point.

    Args:
        others: Datasets that have nothing to do with the pool.
    """
    allowed = set(labeled)
    for loader in leaves(loaders):
        dataset, sampler = getattr(loader, "dataset", None), innermost_sampler(loader)
        if any(dataset is other for other in others):
            continue
        drawn = dataset.indices if isinstance(dataset, LabeledView) else None
        if isinstance(sampler, LabeledSampler):
            drawn = sampler.indices
        if drawn is None or not allowed.issuperset(drawn):
            raise MisconfigurationException(
                f"This fit would train on unlabeled points: Lightning uses a {type(loader).__name__} over "
                f"{type(dataset).__name__} with {type(sampler).__name__}, not the narrowed one. "
                "Trainer(overfit_batches=...) replaces a LabeledSampler; so do loaders built outside train_dataloader."
            )


def innermost_sampler(loader: Any) -> Any:
    """The sampler of a loader; for Lightning's distributed wrapper, the one inside."""
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", getattr(loader, "sampler", None))
    return getattr(getattr(sampler, "dataset", None), "_sampler", sampler)


def check_batch_norm(module: nn.Module, labeled: int) -> None:
    """Refuse the one case in which a batch of one point cannot be helped."""
    awake = [
        child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm) and child.training
    ]
    if labeled == 1 and awake:
        raise MisconfigurationException(
            "There is one labeled point, and BatchNorm cannot be trained on a single one: initial=2 or more is needed."
        )
