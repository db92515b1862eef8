"""Which points of the pool are labeled."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.labels import UNLABELED
from lightning_diffal.pool.record import is_index


class LabelPool:
    """The labels of n points, as far as they are known. Only `reveal` changes them.

    Indices are those of the dataset, everywhere and always: never positions among the unlabeled.
    """

    @skip_type_check
    def __init__(self, size: int) -> None:
        check_count("LabelPool", "size", size)
        self._labels = torch.full((size,), UNLABELED)

    def __len__(self) -> int:
        return len(self._labels)

    def __repr__(self) -> str:
        return f"LabelPool({len(self.labeled)} of {len(self)} points labeled)"

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The class of each point, -1 where unknown. A copy: writing to it reveals nothing."""
        return self._labels.clone()

    @property
    def labeled(self) -> Int[Tensor, " l"]:
        return (self._labels != UNLABELED).nonzero()[:, 0]

    @property
    def unlabeled(self) -> Int[Tensor, " u"]:
        return (self._labels == UNLABELED).nonzero()[:, 0]

    @skip_type_check
    def reveal(self, indices: Sequence[int], labels: Sequence[int]) -> None:
        """Learn the labels of points that had none; all of them or, if one is wrong, none."""
        indices, labels = integers("indices", indices), integers("labels", labels)
        check_reveal(self._labels, indices, labels)
        self._labels[torch.tensor(indices, dtype=torch.long)] = torch.tensor(labels, dtype=torch.long)


@skip_type_check
def integers(name: str, values: object) -> list[int]:
    """A list, tensor or array of integers as a list."""
    try:
        given = values.tolist() if hasattr(values, "tolist") else values
    except (RuntimeError, NotImplementedError):  # tensors that are sparse, quantized or without data
        given = None
    if not isinstance(given, (list, tuple)) or not all(is_index(value) for value in given):
        raise ValueError(f"LabelPool.reveal({name}={values!r:.60}): a list of integers is needed, of 64 bits.")
    return list(given)


def check_reveal(known: Int[Tensor, " n"], indices: Sequence[int], labels: Sequence[int]) -> None:
    """Refuse indices outside the pool, points twice, points that have a label, and labels that are not classes."""
    if len(indices) != len(labels):
        raise ValueError(f"{len(indices)} points and {len(labels)} labels: one label for each point is needed.")
    outside = [index for index in indices if not 0 <= index < len(known)]
    if outside:
        raise ValueError(f"index {outside[0]} is out of range: the pool has {len(known)} points, counted from 0.")
    again = [index for index in indices if known[index] != UNLABELED]
    if again:
        raise ValueError(f"point {again[0]} has a label already, {int(known[again[0]])}. Labels are never asked twice.")
    if len(set(indices)) != len(indices):
        raise ValueError("a point is named twice.")
    wrong = [label for label in labels if label < 0]
    if wrong:
        raise ValueError(f"label {wrong[0]} is not a class: classes are counted from 0.")
