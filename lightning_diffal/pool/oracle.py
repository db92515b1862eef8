"""Where labels come from."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lightning_diffal.pool.dataset.items import BY_FORMAT, LabelField, MapStyle
from lightning_diffal.pool.folder.answer_file import AnswerFile
from lightning_diffal.pool.folder.json_lines import DamagedLineError
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.pool.read_answers import AnswersMismatchError, RecordedAnswers, check_label, read_answers

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

    Args:
        file: Where answers are kept; None keeps them in memory only.
    """

    def __init__(self, function: AnswerFunction, file: AnswerFile | None, label_field: LabelField = BY_FORMAT) -> None:
        self.function, self.immediate = function, bool(getattr(function, "immediate", False))
        self.file, self.label_field = file, label_field
        self.num_classes: int | None = None
        """Once it is known: answers beyond are refused before they are stored."""
        self.labels = file.labels if file is not None else {}

    def __call__(self, indices: Sequence[int]) -> list[int]:
        missing = [index for index in indices if index not in self.labels]
        if missing:
            if self.file is not None:
                self.file.reserve(len(missing))
            self.ask(missing)
        for index in indices:
            self.check_stored(index)
        return [self.labels[index] for index in indices]

    def ask(self, indices: list[int]) -> None:
        before = self.file.file.size if self.file is not None else 0
        given = self.function(list(indices))
        given = RecordedAnswers(given) if isinstance(given, Iterator) else given
        asked = f"oracle={self.function!r}: asked about the {len(indices)} points {indices[:5]}..., "
        try:
            read_answers(given, indices, self.check, self.store)
        except AnswersMismatchError as error:
            self.withdraw(indices, before)
            self.reject(indices, given, str(error))
            raise ValueError(f"{asked}{error}") from None
        except (TypeError, ValueError) as error:
            self.reject(indices, given, str(error))
            raise type(error)(f"{asked}{error}") from error

    def check(self, answer: Any) -> int:
        """The class that an answer names, refused if it is not one."""
        return check_label(self.label_field.to_class(answer), self.num_classes)

    def store(self, indices: Sequence[int], labels: Sequence[int]) -> None:
        if self.file is not None:
            self.file.store(indices, labels)
        else:
            self.labels.update(zip(indices, labels, strict=True))

    def withdraw(self, indices: list[int], size: int) -> None:
        """Take back what was stored of answers that belong to other points."""
        if self.file is not None and self.file.file.size > size:
            self.file.withdraw(size)
        for index in indices:
            self.labels.pop(index, None)

    def reject(self, indices: list[int], given: Any, reason: str) -> None:
        if self.file is not None:
            self.file.reject(indices, given, reason)

    def check_stored(self, index: int) -> None:
        """Refuse an answer of an older version that is not one of the classes, with what to do about it."""
        try:
            self.check(self.labels[index])
        except ValueError as error:
            if self.file is None or index not in self.file.lines:
                raise
            folder = self.file.file.path.parent
            raise DamagedLineError(
                self.file.file.path,
                self.file.lines[index],
                f"about point {index}: {error} `lightning-diffal correct {folder} {index} LABEL` sets it.",
            ) from error


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


def num_classes_of(dataset: MapStyle) -> int | None:
    """How many classes a dataset has by its attribute `classes`, as those of torchvision; no label is read."""
    classes = getattr(unwrap_subsets(dataset), "classes", None)
    return len(classes) if isinstance(classes, Sized) else None


def unwrap_subsets(dataset: MapStyle) -> MapStyle:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def is_integer(values: Tensor) -> bool:
    return not values.dtype.is_floating_point and values.dtype != torch.bool
