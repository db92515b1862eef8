"""Where labels come from."""

from collections.abc import Callable, Iterable, Sequence, Sized
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lightning_diffal.pool.items import BY_FORMAT, LabelField, MapStyle
from lightning_diffal.pool.json_lines import JsonLines
from lightning_diffal.pool.randomness import temporary_seed

# What a user may pass as an oracle: indices in, one class for each out.
AnswerFunction = Callable[[list[int]], Iterable[Any]]


class DatasetOracle:
    """Simulation: the labels are in the dataset already, and each is read when it is asked for.

    They come from `.targets` or `.tensors` where the dataset has them and does not transform them, else by item.
    """

    immediate = True
    """Whether it is asked after each mini-batch of a query, as in Algorithm 1, or once for the whole query."""

    def __init__(self, dataset: MapStyle, label_field: LabelField = BY_FORMAT) -> None:
        self.dataset, self.label_field = dataset, label_field
        # Where the user says where the label is, the items are read.
        self.targets = targets_of(dataset) if self.label_field.where is None else None

    def __call__(self, indices: Sequence[int]) -> list[int]:
        if self.targets is not None:
            return [self.label_field.to_class(self.targets[index]) for index in indices]
        with temporary_seed(0):  # an item may be augmented at random
            return [self.label_field.read(self.dataset[index]) for index in indices]

    def count_classes(self) -> int | None:
        """The number of classes in `.targets`, all of which are read; None if there are none."""
        targets = self.targets
        if isinstance(targets, Tensor) and len(targets):
            return 1 + int(targets.max())
        return 1 + max(map(self.label_field.to_class, targets)) if targets is not None and len(targets) else None


class FunctionOracle:
    """The user's function: a person, a service, a file. Every answer is on the disk before it is used.

    It is asked once for the whole batch, by indices of the dataset, and never twice for the same point: what it
    answered before the process was killed is read back.
    """

    def __init__(self, function: AnswerFunction, path: Path | None, label_field: LabelField = BY_FORMAT) -> None:
        self.label_field = label_field
        self.function, self.immediate = function, bool(getattr(function, "immediate", False))
        self.file = JsonLines(path) if path is not None else None
        lines = self.file.read() if self.file is not None else []
        self.known = {index: label for line in lines for index, label in zip(*line.values(), strict=True)}

    def __call__(self, indices: Sequence[int]) -> list[int]:
        missing = [index for index in indices if index not in self.known]
        if missing:
            answers = [self.label_field.to_class(answer) for answer in self.function(missing)]
            if len(answers) != len(missing) or min(answers) < 0:
                raise ValueError(
                    f"oracle={self.function!r}: asked about the {len(missing)} points {missing[:5]}..., it answered "
                    f"{len(answers)} labels, {answers[:5]}... One class for each, counted from 0, is needed."
                )
            if self.file is not None:
                self.file.append({"indices": missing, "labels": answers})
            self.known.update(zip(missing, answers, strict=True))
        return [self.known[index] for index in indices]


# The dataset's own labels reach training and selectors through an oracle only.
Oracle: TypeAlias = DatasetOracle | FunctionOracle


def targets_of(dataset: MapStyle) -> Sequence[Any] | Tensor | None:
    """The labels of all points without loading them, None if only the items hold them."""
    if isinstance(dataset, Subset):
        inner = targets_of(dataset.dataset)
        return None if inner is None else SubsetTargets(inner, dataset.indices)
    if isinstance(dataset, TensorDataset):
        whole = [part for part in dataset.tensors[1:] if part.ndim == 1 and is_integer(part)]
        return whole[0] if len(whole) == 1 else None
    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None:
        return None
    one_each = getattr(targets, "ndim", 1) == 1 and hasattr(targets, "__getitem__")
    return targets if one_each else None


class SubsetTargets(Sequence[Any]):
    """The labels of a subset, read one by one."""

    def __init__(self, targets: Any, indices: Sequence[int]) -> None:
        self.targets, self.indices = targets, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: Any) -> Any:
        return self.targets[self.indices[row]]


def unwrap_subsets(dataset: MapStyle) -> MapStyle:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def count_class_names(dataset: MapStyle) -> int | None:
    """The length of the dataset's `classes`, as torchvision's datasets have them."""
    classes = getattr(unwrap_subsets(dataset), "classes", None)
    return len(classes) if isinstance(classes, Sized) else None


def is_integer(values: Tensor) -> bool:
    return not values.dtype.is_floating_point and values.dtype != torch.bool
