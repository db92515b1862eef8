"""Where labels come from."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lightning_diffal.pool.items import MapStyle, label_of, to_class
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

    def __init__(self, dataset: MapStyle) -> None:
        self.dataset = dataset

    def __call__(self, indices: Sequence[int]) -> list[int]:
        targets = targets_of(self.dataset)
        if targets is not None:
            return [to_class(targets[index]) for index in indices]
        with temporary_seed(0):  # an item may be augmented at random
            return [label_of(self.dataset[index]) for index in indices]

    def num_classes(self) -> int | None:
        """How many classes there are, if that is known without reading the items."""
        targets = targets_of(self.dataset)
        if targets is not None and len(targets):
            return 1 + max(map(to_class, targets))
        classes = getattr(unwrap_subsets(self.dataset), "classes", None)
        return len(classes) if classes is not None else None


class FunctionOracle:
    """The user's function: a person, a service, a file. Every answer is on the disk before it is used.

    It is asked once for the whole batch, by indices of the dataset, and never twice for the same point: what it
    answered before the process was killed is read back.
    """

    def __init__(self, function: AnswerFunction, path: Path | None) -> None:
        self.function, self.immediate = function, bool(getattr(function, "immediate", False))
        self.file = JsonLines(path) if path is not None else None
        lines = self.file.read() if self.file is not None else []
        self.known = {index: label for line in lines for index, label in zip(*line.values(), strict=True)}

    def __call__(self, indices: Sequence[int]) -> list[int]:
        missing = [index for index in indices if index not in self.known]
        if missing:
            answers = [to_class(answer) for answer in self.function(missing)]
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


def is_integer(values: Tensor) -> bool:
    return not values.dtype.is_floating_point and values.dtype != torch.bool
