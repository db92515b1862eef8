"""What is refused before a step is trained: loaders without indices, and loaders that can reach an unlabeled point."""

from collections.abc import Sequence
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from lightning_diffal.plugin.data.diffused_view import WithDiffused
from lightning_diffal.plugin.data.loader_tree import flatten_loaders
from lightning_diffal.plugin.data.loaders import AnsweredDataset, LabeledView, UnlabeledView
from lightning_diffal.plugin.data.samplers import LabeledSampler
from lightning_diffal.pool.dataset.fingerprint import length_of
from lightning_diffal.pool.dataset.items import MapStyle


def check_loader(loader: Any) -> None:
    """Refuse a training loader that cannot be restricted to labeled points."""
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


def check_training_loaders(
    loaders: Any,
    allowed_items: Sequence[tuple[MapStyle, set[int]]],
    other_datasets: Sequence[MapStyle],
    diffused_items: Sequence[tuple[MapStyle, set[int]]] = (),
) -> None:
    """Stop a run whose loaders, as Lightning will really use them, could draw an unlabeled point.

    Args:
        allowed_items: Datasets that show the pool, each with the positions of its labeled items.
        diffused_items: The same with the items that may be trained on with a diffused label.
    """
    for loader in flatten_loaders(loaders):
        dataset, sampler = getattr(loader, "dataset", None), innermost_sampler(loader)
        if isinstance(dataset, UnlabeledView) or any(dataset is other for other in other_datasets):
            continue
        diffused = dataset.diffused if isinstance(dataset, WithDiffused) else None
        dataset = dataset.labeled if isinstance(dataset, WithDiffused) else dataset
        drawn = dataset.indices if isinstance(dataset, LabeledView) else None
        source = dataset.dataset if isinstance(dataset, (LabeledView, AnsweredDataset)) else dataset
        if isinstance(sampler, LabeledSampler):
            drawn = sampler.indices
        extra = diffused is not None and not items_of(diffused.dataset, diffused_items).issuperset(diffused.indices)
        if drawn is None or extra or not items_of(source, allowed_items).issuperset(drawn):
            raise MisconfigurationException(
                f"This fit would train on unlabeled points: Lightning uses a {type(loader).__name__} over "
                f"{type(dataset).__name__} with {type(sampler).__name__}, not the one restricted to labeled points. "
                "Trainer(overfit_batches=...) replaces a LabeledSampler; so do loaders built outside train_dataloader."
            )


def items_of(dataset: MapStyle, items: Sequence[tuple[MapStyle, set[int]]]) -> set[int]:
    return next((positions for shown, positions in items if shown is dataset), set[int]())


def innermost_sampler(loader: Any) -> Any:
    """The sampler of a loader; for Lightning's distributed wrapper, the one inside."""
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", getattr(loader, "sampler", None))
    return getattr(getattr(sampler, "dataset", None), "_sampler", sampler)


def check_batch_norm(module: nn.Module, num_labeled: int) -> None:
    """Refuse to train BatchNorm on a single labeled point: no batch can have two."""
    training = [
        child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm) and child.training
    ]
    if num_labeled == 1 and training:
        raise MisconfigurationException(
            "There is one labeled point, and BatchNorm cannot be trained on a single one: initial=2 or more is needed."
        )
