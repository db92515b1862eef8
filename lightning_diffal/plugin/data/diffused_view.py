"""Points with diffused labels in every batch, beside the labeled points that the user's sampler draws."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.plugin.data.copy_loader import update_saved_arguments, with_dataset
from lightning_diffal.plugin.data.item_weight import with_weight
from lightning_diffal.plugin.data.loaders import RelabeledView
from lightning_diffal.pool.dataset.items import MapStyle
from lightning_diffal.pool.randomness import seed_of


class WithDiffused(Dataset[Any]):
    """The labeled points, and for each batch of them some points with diffused labels.

    DataLoader asks a dataset that has `__getitems__` for the items of a whole batch. So samplers, batch samplers and
    what Lightning makes of them on several ranks see the labeled points alone and need not know of any others: the
    number of steps stays what it is.

    Args:
        labeled: A LabeledView, or the user's dataset where a LabeledSampler draws from it.
        share: Points with diffused labels for each labeled point of a batch, on average.
        seed: Of the draws; another one on every rank.
        weight: Where items have a weight, as `LearnFromGraph` says.
        weights: Those of the points with diffused labels.
    """

    def __init__(
        self,
        labeled: MapStyle,
        diffused: RelabeledView,
        share: float,
        seed: int,
        weight: bool | str = False,
        weights: Sequence[float] = (),
    ) -> None:
        self.labeled, self.diffused, self.share, self.seed = labeled, diffused, share, seed
        self.weight, self.weights = weight, weights
        self.batches = 0

    def __len__(self) -> int:
        return len(self.labeled)

    def __getitem__(self, row: Any) -> Any:
        item = self.labeled[row]
        return item if self.weight is False else with_weight(item, 1.0, self.weight)

    def __getitems__(self, rows: list[int]) -> list[Any]:
        items = self.labeled.__getitems__(rows) if hasattr(self.labeled, "__getitems__") else None
        if not isinstance(items, list):
            items = [self.labeled[row] for row in rows]
        drawn = self.draw(len(rows))
        more = self.diffused.__getitems__(drawn)
        if self.weight is False:
            return items + more
        weights = [1.0] * len(items) + [self.weights[row] for row in drawn]
        return [with_weight(item, weight, self.weight) for item, weight in zip(items + more, weights, strict=True)]

    def draw(self, num_labeled: int) -> list[int]:
        """Different rows of points with diffused labels, other ones in each batch."""
        worker = get_worker_info()
        # Copies in workers count their own batches. Those of new workers begin at 0, but have another seed.
        seed = seed_of(self.seed, worker.seed if worker is not None else 0)
        generator = torch.Generator().manual_seed(seed_of(seed, self.batches))
        self.batches += 1
        count = int(self.share * num_labeled + float(torch.rand((), generator=generator)))
        count = min(count, len(self.diffused))
        return sample_without_replacement(count, len(self.diffused), generator, torch.device("cpu")).tolist()


def with_diffused(
    loader: "DataLoader[Any]",
    diffused: RelabeledView,
    share: float,
    seed: int,
    weight: bool | str = False,
    weights: Sequence[float] = (),
) -> "DataLoader[Any]":
    """A loader of labeled points that shows points with diffused labels, too."""
    view = WithDiffused(loader.dataset, diffused, share, seed, weight, weights)
    fresh = with_dataset(loader, view)
    update_saved_arguments(fresh, view)
    return fresh
