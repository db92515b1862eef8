"""The label in an item of a dataset: find it, read it, leave it out, replace it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.labels import UNLABELED
from lightning_diffal.pool.dataset.classes import describe, is_integer, is_number, is_one_hot, refusal_of, to_class

# A dataset: anything with __getitem__ and __len__, as DataLoader takes lists and arrays too.
MapStyle: TypeAlias = Any

# Keys and attributes of the label in items that are dictionaries or objects.
LABEL_KEYS = ("label", "labels", "target", "targets", "y", "class", "class_id", "class_index")

# What a user may pass as `label`: a key, a position, an attribute, or functions (get, set) of an item.
LabelArgument: TypeAlias = str | int | tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]


@skip_type_check
@dataclass(frozen=True)
class LabelField:
    """Where the label is in an item: found by the item's format, or where the user's `label=` says.

    Args:
        where: Key, position or attribute of the label, or a pair of functions: `get(item)` gives the label,
            `set(item, label)` the item with another one.
        classes: Names of the classes in order, for labels that are strings.
        add: Whether items may have no label, which is then added: under the key or attribute `where`, by default
            "label" in a dictionary, else after the other entries.
    """

    where: LabelArgument | None = None
    classes: Sequence[str] | None = None
    add: bool = False

    def __post_init__(self) -> None:
        where = self.where
        pair = isinstance(where, tuple) and len(where) == 2 and all(map(callable, where))
        name = isinstance(where, (str, int)) and not isinstance(where, bool)
        if not (where is None or pair or name):
            raise ValueError(
                f"label={where!r}: a key, a position, an attribute or a pair of functions (get, set) is needed; "
                "get(item) gives the label, set(item, label) the item with another one."
            )
        names = self.classes
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise ValueError(f"classes={names!r}: a list of the classes' names in order is needed.")

    def read(self, item: Any) -> int:
        """The class in an item."""
        if isinstance(self.where, tuple):
            return self.to_class(self.where[0](item))
        key = self.key(item)
        if key is None:
            raise TypeError(refusal_of(item))
        return self.to_class(entry(item, key))

    def to_class(self, value: Any) -> int:
        return to_class(value, self.classes)

    def remove(self, item: Any) -> Any:
        """The item without its label: what a model may see of it."""
        if isinstance(self.where, tuple):
            return self.where[1](item, UNLABELED)
        key = self.key(item)
        if isinstance(item, Mapping):
            return {name: value for name, value in item.items() if name != key}
        if is_object(item):
            return {name: value for name, value in attributes(item).items() if name != key}
        return item if key is None else [value for position, value in enumerate(item) if position != key]

    def replace(self, item: Any, label: int) -> Any:
        """The item with another label in the format of its own; an item without one becomes a pair."""
        if isinstance(self.where, tuple):
            return self.where[1](item, label)
        key = self.key(item)
        if key is None:
            if isinstance(item, Mapping):
                return {**item, LABEL_KEYS[0] if self.where is None else self.where: label}
            if isinstance(self.where, str) and is_object(item):
                return with_entry(item, self.where, label)
            return (item, label) if not isinstance(item, (tuple, list)) else (*item, label)
        return with_entry(item, key, self.in_format_of(entry(item, key), label))

    def hide(self, item: Any) -> Any:
        """The item with -1 for its label; an item without one stays as it is, unless labels are added."""
        stays = not self.add and not isinstance(self.where, tuple) and self.key(item) is None
        return item if stays else self.replace(item, UNLABELED)

    def key(self, item: Any) -> Any:
        """The key, position or attribute of the label, None if there is none."""
        where = self.where
        if where is None:
            return find_key(item, self.classes, by_name=self.add)
        try:
            entry(item, where)
        except (KeyError, IndexError, AttributeError, TypeError):
            if self.add:
                return None
            raise TypeError(
                f"label={where!r}: an item is {describe(item)}, which has no such key, position or attribute. Name "
                "the place of the label, or give a pair of functions (get, set)."
            ) from None
        if isinstance(item, (tuple, list)):  # also by a field's name, or from the end
            return where % len(item) if isinstance(where, int) else item._fields.index(where)  # type: ignore[union-attr]
        return where

    def in_format_of(self, before: Any, label: int) -> Any:
        """A label as a dataset would give it: a tensor, an array, one-hot, a string, a number."""
        if isinstance(before, Tensor):
            after = torch.full_like(before, UNLABELED if label == UNLABELED else 0 if is_one_hot(before) else label)
            if label != UNLABELED and is_one_hot(before):
                after[label] = 1
            return after
        if isinstance(before, np.ndarray):
            return self.in_format_of(torch.from_numpy(before), label).numpy()
        if isinstance(before, str):
            return self.classes[label] if self.classes is not None and label != UNLABELED else ""
        return float(label) if isinstance(before, float) else label


# Labels found by the format of the items.
BY_FORMAT = LabelField()


def find_key(item: Any, classes: Sequence[str] | None, by_name: bool = False) -> Any:
    """By format: a dictionary's or object's entry, the second of a pair, the only integer of a longer tuple.

    Of several integers in a tuple the second entry is the label, as in (x, y, index).

    Args:
        by_name: Whether the label of a dictionary must have one of the usual names: where items may have no label, the
            only integer may be the number of an item.
    """
    if isinstance(item, Mapping):
        named = [key for key in LABEL_KEYS if key in item]
        integers = [] if by_name else [key for key, value in item.items() if is_label(value, classes)]
        return named[0] if named else single(integers)
    if isinstance(item, (tuple, list)):
        fields = getattr(item, "_fields", ())
        field = next((fields.index(name) for name in LABEL_KEYS if name in fields), None)
        if field is not None or len(item) < 2:
            return field
        labels = integer_positions(item) or [place for place, value in enumerate(item) if is_label(value, classes)]
        second, pair = item[1], len(item) == 2
        is_name = classes is not None and isinstance(second, str)
        # An array of one, too, unless all entries are arrays of integers, as token ids and masks are.
        is_class = is_integer(second) and "int" not in str(getattr(item[0], "dtype", ""))
        if is_class or 1 in labels or (pair and (is_number(second) or is_name)) or (not labels and is_one_hot(second)):
            return 1
        return single(labels) if len(item) > 2 else None
    if is_object(item):
        return next((name for name in LABEL_KEYS if getattr(item, name, None) is not None), None)
    return None


def is_label(value: Any, classes: Sequence[str] | None) -> bool:
    return is_integer(value) or (classes is not None and isinstance(value, str) and value in classes)


def integer_positions(item: Any) -> list[int]:
    """Where a tuple has integers, not counting arrays of one."""
    if not isinstance(item, (tuple, list)):
        return []
    return [place for place, value in enumerate(item) if is_integer(value) and not getattr(value, "ndim", 0)]


def single(keys: list[Any]) -> Any:
    return keys[0] if len(keys) == 1 else None


def is_object(item: Any) -> bool:
    """Whether an item has attributes for entries, as torch_geometric's Data or a dataclass."""
    if isinstance(item, (Mapping, tuple, list, str, bytes)) or hasattr(item, "tobytes") or isinstance(item, Tensor):
        return False
    return bool(attributes(item))


def attributes(item: Any) -> dict[str, Any]:
    if hasattr(item, "to_dict") and hasattr(item, "keys"):  # torch_geometric's Data
        return dict(item.to_dict())
    return {name: value for name, value in getattr(item, "__dict__", {}).items() if not name.startswith("_")}


def entry(item: Any, key: Any) -> Any:
    return getattr(item, key) if isinstance(key, str) and not isinstance(item, Mapping) else item[key]


def with_entry(item: Any, key: Any, value: Any) -> Any:
    """A shallow copy of the item with one entry changed."""
    if isinstance(item, Mapping):
        return {**item, key: value}
    if isinstance(item, (tuple, list)):
        parts = [value if position == key else part for position, part in enumerate(item)]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    fresh = copy.copy(item)
    setattr(fresh, key, value)
    return fresh
