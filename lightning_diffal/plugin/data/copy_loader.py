"""Copies of a DataLoader, whatever its class and constructor, over another dataset."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from lightning_diffal.pool.dataset.items import MapStyle

# Batch size of the embedding pass where the user's loader has none, or a smaller one.
POOL_BATCH_SIZE = 64
# But no more than so many batches at once: without gradients they need about the memory of one in training.
BATCHES_AT_ONCE = 8


def pool_loader(loader: "DataLoader[Any]", indices: Sequence[int], batch_size: int | None) -> "DataLoader[Any]":
    """The same loader once through the given points, in that order and none left out."""
    whole = len(indices) == len(loader.dataset) and list(indices) == list(range(len(indices)))  # type: ignore[arg-type]
    dataset = loader.dataset if whole else Subset(loader.dataset, indices)
    changes: dict[str, Any] = {"generator": None, "persistent_workers": False}
    if type(loader.dataset) is TensorDataset and loader.collate_fn is default_collate:
        dataset, changes["collate_fn"] = TensorRows(loader.dataset, indices), list
    sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
    batches = BatchSampler(sampler, batch_size or pool_batch_size(loader), drop_last=False)
    return with_batches(loader, dataset, sampler, batches, **changes)


class TensorRows(Dataset[Any]):
    """Points of a TensorDataset, a whole batch at a time: what `default_collate` makes of its items, without them."""

    def __init__(self, dataset: "TensorDataset", indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, torch.as_tensor(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Any:
        return self.dataset[int(self.indices[place])]

    def __getitems__(self, places: list[int]) -> list[Tensor]:
        rows = self.indices[places]
        return [tensor[rows] for tensor in self.dataset.tensors]


def pool_batch_size(loader: "DataLoader[Any]") -> int:
    """As many points as in training, and up to 8 times as many where that is fewer than 64."""
    size = batch_size_of(loader)
    return max(size, min(BATCHES_AT_ONCE * size, POOL_BATCH_SIZE))


def batch_size_of(loader: "DataLoader[Any]") -> int:
    size = getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size
    return size if isinstance(size, int) else POOL_BATCH_SIZE


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
    """A copy of a loader over another dataset, with another sampler and batch sampler."""
    fresh = copy.copy(loader)
    # Not by setattr: DataLoader refuses it, since workers would not notice. The copy has none yet.
    vars(fresh).update(dataset=dataset, sampler=sampler, batch_sampler=batches, _iterator=None, **changes)
    update_saved_arguments(fresh, dataset)
    return fresh


def update_saved_arguments(loader: "DataLoader[Any]", dataset: MapStyle) -> None:
    """Replace the dataset among the constructor's arguments that Lightning has saved.

    It saves them in hooks like `train_dataloader`, to build the loader again with a distributed sampler. There is no
    public way in; should the names change, `check_training_loaders` stops the run.
    """
    saved = vars(loader)
    if "__pl_saved_args" not in saved:
        return
    names, kwargs = saved["__pl_saved_arg_names"], dict(saved["__pl_saved_kwargs"])
    if "dataset" in names:
        at = names.index("dataset")
        saved["__pl_saved_args"] = (*saved["__pl_saved_args"][:at], dataset, *saved["__pl_saved_args"][at + 1 :])
    elif "dataset" in kwargs:
        kwargs["dataset"] = dataset
    saved["__pl_saved_kwargs"], saved["__dataset"] = kwargs, dataset
