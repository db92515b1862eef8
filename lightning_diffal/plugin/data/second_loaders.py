"""Training loaders beside the first: they show points of the pool, or data that has nothing to do with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.plugin.data.loader_tree import named_loader
from lightning_diffal.pool.dataset.fingerprint import length_of
from lightning_diffal.pool.dataset.item_origins import origins_of, positions_in
from lightning_diffal.pool.dataset.items import MapStyle


@dataclass(frozen=True, eq=False)
class PoolView:
    """A dataset whose items are points of the pool, perhaps in another order, some of them or some twice."""

    dataset: MapStyle
    index: Int[Tensor, " m"]
    """For each item, its index in the pool."""

    def labeled(self, labels: Int[Tensor, " n"]) -> tuple[list[int], list[int]]:
        """The positions of its labeled items, and their labels.

        Args:
            labels: Of the pool, -1 where unknown.
        """
        known = labels[self.index]
        positions = (known >= 0).nonzero()[:, 0]
        return positions.tolist(), known[positions].tolist()


def named_loaders(loaders: Any, name: str = "") -> list[tuple[str, Any]]:
    """The single loaders of any arrangement with their names: keys of dictionaries, positions in lists."""
    if hasattr(loaders, "flattened"):  # a CombinedLoader of either namespace
        names = [name for name, _ in named_loaders(loaders.iterables)]
        return list(zip(names, loaders.flattened, strict=True))
    if isinstance(loaders, Mapping):
        parts = list(loaders.items())
    elif isinstance(loaders, (list, tuple)):
        parts = list(enumerate(loaders))
    else:
        return [(name, loaders)]
    prefix = f"{name}." if name else ""
    return [pair for key, part in parts for pair in named_loaders(part, f"{prefix}{key}")]


def sort_loaders(
    loaders: Any, other_data: Sequence[Any], same_data: Sequence[Any], unlabeled: str | int | None = None
) -> tuple[list[PoolView], list[MapStyle]]:
    """The datasets that show points of the pool, the first one being it, and those that are other data.

    What shows the pool is found by the identity of the underlying items. What cannot be identified is refused unless
    the user says what it is. The loader named `unlabeled` is neither.
    """
    left_out = named_loader(loaders, unlabeled)
    (first_name, first), *rest = [(name, loader) for name, loader in named_loaders(loaders) if loader is not left_out]
    names = [first_name, *(name for name, _ in rest)]
    for argument, given in (("other_data", other_data), ("same_data", same_data)):
        for entry in given:
            check_entry(argument, entry, names, [loader.dataset for _, loader in [(first_name, first), *rest]])
    pool = first.dataset
    views, others = [PoolView(pool, torch.arange(length_of(pool) or 0))], list[MapStyle]()
    if not rest:
        return views, others
    origins = origins_of(pool)
    for name, loader in rest:
        dataset = loader.dataset
        index = positions_in(origins, origins_of(dataset))
        shared = int((index >= 0).sum())
        if is_named(other_data, name, dataset):
            if shared:
                raise MisconfigurationException(
                    f"other_data=[...]: the training loader {name!r} is not other data, {shared} of its {len(index)} "
                    "items are points of the pool."
                )
            others.append(dataset)
        elif shared == len(index):
            views.append(PoolView(dataset, index))
        elif shared == 0 and is_named(same_data, name, dataset):
            if len(index) != len(origins):
                raise MisconfigurationException(
                    f"same_data=[...]: the training loader {name!r} has {len(index)} items, the pool {len(origins)}."
                )
            views.append(PoolView(dataset, torch.arange(len(index))))
        else:
            raise MisconfigurationException(unknown_data(name, dataset, shared, len(index)))
    return views, others


def unknown_data(name: str, dataset: MapStyle, shared: int, size: int) -> str:
    kind = type(dataset).__name__
    if shared:
        what = f"{shared} of its {size} items are points of the pool, the others are not"
    else:
        what = "from outside it cannot be told whether its items are points of the pool, which may be unlabeled"
    return (
        f"The training loader {name!r} over {kind}: {what}. If it has nothing to do with the pool, say so: "
        f"other_data=[{name!r}]. If it shows the same points in the same order: same_data=[{name!r}]. A Subset of the "
        "dataset of the first loader is recognised by itself."
    )


def check_entry(argument: str, entry: Any, names: Sequence[str], datasets: Sequence[MapStyle]) -> None:
    """Refuse a name or dataset that no training loader has."""
    if not any(is_named([entry], name, dataset) for name, dataset in zip(names, datasets, strict=True)):
        raise MisconfigurationException(
            f"{argument}=[...]: there is no training loader {entry!r:.60}. There are {', '.join(map(repr, names))}."
        )


def is_named(entries: Sequence[Any], name: str, dataset: MapStyle) -> bool:
    """Whether a loader is among the entries, by its name, its position or its dataset."""
    return any(entry is dataset or (isinstance(entry, (str, int)) and str(entry) == name) for entry in entries)
