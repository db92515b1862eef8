"""Where the label is in what a dataset gives for one point."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

# A dataset: anything with __getitem__ and __len__, as DataLoader takes lists and arrays too.
MapStyle: TypeAlias = Any

# What a label is called where items are dictionaries.
LABEL_KEYS = ("label", "labels", "target", "targets", "y", "class", "class_id", "class_index")


def label_of(item: Any) -> int:
    """The class in an item: the second of a pair, the one whole number of a longer tuple, a dictionary's entry."""
    place = place_of_label(item)
    if place is None:
        raise TypeError(f"An item of the dataset is {described(item)}, which says no label.")
    return as_class(item[place])


def without_label(item: Any) -> Any:
    """What a model may see of an item."""
    place = place_of_label(item)
    if place is None:
        return item
    if isinstance(item, Mapping):
        return {key: value for key, value in item.items() if key != place}
    return [value for position, value in enumerate(item) if position != place]


def with_label(item: Any, label: int) -> Any:
    """The item with another label; an item without one becomes a pair."""
    place = place_of_label(item)
    if place is None:
        if isinstance(item, Mapping):
            return {**item, LABEL_KEYS[0]: label}
        return (item, label) if not isinstance(item, (tuple, list)) else (*item, label)
    before = item[place]
    fresh = torch.full_like(before, label) if isinstance(before, Tensor) else label
    if isinstance(item, Mapping):
        return {**item, place: fresh}
    return type(item)(fresh if position == place else value for position, value in enumerate(item))


def place_of_label(item: Any) -> Any:
    """The key or position of the label, None if there is none."""
    if isinstance(item, Mapping):
        named = [key for key in LABEL_KEYS if key in item]
        return named[0] if named else only([key for key, value in item.items() if is_whole(value)])
    if isinstance(item, (tuple, list)):
        if len(item) == 2:
            return 1 if is_number(item[1]) else None
        return only([position for position, value in enumerate(item) if is_whole(value)])
    return None


def only(places: list[Any]) -> Any:
    return places[0] if len(places) == 1 else None


def is_whole(value: Any) -> bool:
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


def as_class(value: Any) -> int:
    """A class as it comes from a dataset or an oracle: an integer, or a number that is one."""
    try:
        number = value.item() if hasattr(value, "item") else value
        if not isinstance(number, str) and int(number) == number:
            return int(number)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"A label is {described(value)}: one class for each point is needed, a whole number from 0.")


def described(value: Any) -> str:
    """A short description for messages."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dictionary with the keys {sorted(map(str, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of ({', '.join(type(part).__name__ for part in value)})"
    return f"{type(value).__name__} {value!r:.60}"
