"""Which items two datasets have in common, by what they are made of: not by length, not by content."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from lightning_diffal.pool.dataset.items import MapStyle

# Room for the rows of one source in an int64 that names source and row.
ROWS = 2**44


@dataclass(frozen=True, eq=False)
class ItemOrigins:
    """Where each item of a dataset comes from: a source, and its row there.

    A source is an object that gives items, or the memory of a tensor.
    """

    sources: list[Hashable]
    source: Int[Tensor, " n"]
    """For each item, a position in `sources`."""
    row: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.row)

    def codes(self, sources: Sequence[Hashable]) -> Int[Tensor, " n"]:
        """Each item as one number; -1 where it does not come from these sources."""
        number = {source: position for position, source in enumerate(sources)}
        numbers = torch.tensor([number.get(source, -1) for source in self.sources], dtype=torch.long)
        of_item = numbers[self.source]
        return torch.where(of_item < 0, -1, of_item * ROWS + self.row)


def origins_of(dataset: MapStyle) -> ItemOrigins:
    """Unwrap Subset and ConcatDataset down to the objects, or tensors, that hold the items.

    Cost: O(n) time and memory for each dataset in the chain.
    """
    if isinstance(dataset, Subset):
        inner = origins_of(dataset.dataset)
        rows = torch.as_tensor(list(map(int, dataset.indices)), dtype=torch.long)
        return ItemOrigins(inner.sources, inner.source[rows], inner.row[rows])
    if isinstance(dataset, ConcatDataset):
        parts = [origins_of(part) for part in dataset.datasets]
        sources = list(dict.fromkeys(source for part in parts for source in part.sources))
        position = {source: place for place, source in enumerate(sources)}
        moved = [torch.tensor([position[source] for source in part.sources])[part.source] for part in parts]
        return ItemOrigins(sources, torch.cat(moved), torch.cat([part.row for part in parts]))
    if isinstance(dataset, TensorDataset):
        return rows_in_memory(dataset.tensors[0])
    size = len(dataset)
    return ItemOrigins([("object", id(dataset))], torch.zeros(size, dtype=torch.long), torch.arange(size))


def rows_in_memory(tensor: Tensor) -> ItemOrigins:
    """The rows of a tensor: two tensors on one storage share those at the same addresses."""
    stride = tensor.stride(0) * tensor.element_size()
    storage = tensor.untyped_storage().data_ptr()
    size = len(tensor)
    source = ("memory", str(tensor.device), storage, stride)
    first = (tensor.data_ptr() - storage) // stride if stride else 0
    rows = torch.arange(first, first + size) if stride else torch.zeros(size, dtype=torch.long)
    return ItemOrigins([source], torch.zeros(size, dtype=torch.long), rows)


def positions_in(pool: ItemOrigins, other: ItemOrigins) -> Int[Tensor, " m"]:
    """For each item of another dataset, the pool's index of the same item; -1 where the pool does not have it.

    If the pool has an item several times, its lowest index. Cost: a sort, O(n log n).
    """
    ours, theirs = pool.codes(pool.sources), other.codes(pool.sources)
    order = torch.argsort(ours, stable=True)
    found = torch.searchsorted(ours[order], theirs).clamp(max=max(len(ours) - 1, 0))
    index = order[found]
    return torch.where(ours[index] == theirs, index, -1)
