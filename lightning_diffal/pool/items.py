"""The label in an item of a dataset: find it, leave it out, replace it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

# A dataset: anything with __getitem__ and __len__, as DataLoader takes lists and arrays too.
MapStyle: TypeAlias = Any

# Keys of the label in items that are dictionaries.
LABEL_KEYS = ("label", "labels", "target", "targets", "y", "class", "class_id", "class_index")


def label_of(item: Any) -> int:
    """The class in an item: the second of a pair, the only integer of a longer tuple, a dictionary's entry."""
    key = label_key(item)
    if key is None:
        raise TypeError(f"An item of the dataset is {describe(item)}: it has no label.")
    return to_class(item[key])


def without_label(item: Any) -> Any:
    """The item without its label: what a model may see of it."""
    key = label_key(item)
    if key is None:
        return item
    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if name != key}
    return [value for position, value in enumerate(item) if position != key]


def with_label(item: Any, label: int) -> Any:
    """The item with another label; an item without one becomes a pair."""
    key = label_key(item)
    if key is None:
        if isinstance(item, Mapping):
            return {**item, LABEL_KEYS[0]: label}
        return (item, label) if not isinstance(item, (tuple, list)) else (*item, label)
    before = item[key]
    fresh = torch.full_like(before, label) if isinstance(before, Tensor) else label
    if isinstance(item, Mapping):
        return {**item, key: fresh}
    return type(item)(fresh if position == key else value for position, value in enumerate(item))


def label_key(item: Any) -> Any:
    """The key or position of the label, None if there is none."""
    if isinstance(item, Mapping):
        named = [key for key in LABEL_KEYS if key in item]
        return named[0] if named else single([key for key, value in item.items() if is_integer(value)])
    if isinstance(item, (tuple, list)):
        if len(item) == 2:
            return 1 if is_number(item[1]) else None
        return single([position for position, value in enumerate(item) if is_integer(value)])
    return None


def single(keys: list[Any]) -> Any:
    return keys[0] if len(keys) == 1 else None


def is_integer(value: Any) -> bool:
    """Whether a value is one integer."""
    if isinstance(value, bool):
        return False
    kind = getattr(value, "dtype", None)
    if kind is None:
        return isinstance(value, int)
    return getattr(value, "ndim", 1) == 0 and "int" in str(kind)


def is_number(value: Any) -> bool:
    """Whether a value is a single number: also True, 1.0, or a tensor of one element."""
    if isinstance(value, Tensor):
        return value.numel() == 1
    if hasattr(value, "dtype"):
        return bool(value.size == 1)
    return isinstance(value, (bool, int, float))


def to_class(value: Any) -> int:
    """A class as it comes from a dataset or an oracle: an integer, or a number that is one."""
    try:
        number = value.item() if hasattr(value, "item") else value
        if not isinstance(number, str) and int(number) == number:
            return int(number)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # inf is not an integer
        pass
    raise TypeError(f"A label is {describe(value)}: one class for each point is needed, an integer from 0.")


def describe(value: Any) -> str:
    """A short description for messages."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dictionary with the keys {sorted(map(str, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of ({', '.join(type(part).__name__ for part in value)})"
    return f"{type(value).__name__} {value!r:.60}"
