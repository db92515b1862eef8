"""One class for each point: what is one, and what is said of everything else."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def to_class(value: Any, classes: Sequence[str] | None = None) -> int:
    """A class as it comes from a dataset or an oracle: an integer, a number that is one, one-hot, or a name.

    Args:
        classes: The names in order, for labels that are strings.
    """
    if isinstance(value, str):
        if classes is None:
            raise TypeError(
                f"A label is the string {value!r}: one class for each point is needed, a whole number from 0, or "
                f"classes=[{value!r}, ...], the names of the classes in order."
            )
        if value not in classes:
            raise ValueError(f"label {value!r} is not among classes={list(classes)}.")
        return list(classes).index(value)
    if is_one_hot(value):
        return int(torch.as_tensor(value).argmax())
    try:
        number = value.item() if hasattr(value, "item") else value
        if int(number) == number:
            return int(number)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # inf is not an integer
        pass
    raise TypeError(f"A label is {describe(value)}. {unsupported(task_of(value))}")


def unsupported(task: str | None) -> str:
    """What is supported, and the way around for a task that is not."""
    looks = f"This looks like {task}, which is not supported: " if task is not None else ""
    return (
        f"{looks}one class for each point is needed, a whole number from 0, one-hot, or a name with classes=[...]. A "
        "score of your own that needs no class works for any task: ActiveLearning(selector=score, "
        "embedding=lambda module, batch: ..., label=(lambda item: 0, lambda item, label: item))."
    )


def refusal_of(item: Any) -> str:
    """The message for an item without a label."""
    found = f"An item of the dataset is {describe(item)}: it has no label that can be found. "
    task = None
    if isinstance(item, Mapping):
        keys = {str(key).lower() for key in item}
        task = "segmentation" if any("mask" in key for key in keys) else None
        task = "detection" if any("box" in key for key in keys) else task
    elif isinstance(item, (tuple, list)) and len(item) > 1:
        task = task_of(item[1])
        if isinstance(item[1], str):
            return found + f"If its label is the string {item[1]!r}, classes=[...] names the classes in order."
    if task is not None:
        return found + unsupported(task)
    return found + (
        "label=... names its key, position or attribute, or is a pair of functions (get, set); where the dataset has "
        "no labels, oracle=... answers instead."
    )


def task_of(value: Any) -> str | None:
    """The task whose targets look like this, None if it cannot be told."""
    if isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping)):
        keys = value if isinstance(value, Mapping) else value[0]
        return "detection" if any("box" in str(key).lower() for key in keys) else None
    if isinstance(value, float):
        return "regression"
    if not hasattr(value, "shape"):
        return "segmentation" if hasattr(value, "getpixel") else None  # an image of PIL's
    shape = [length for length in value.shape if length != 1]
    if len(shape) > 1:
        return "detection" if len(shape) == 2 and shape[1] == 4 and "float" in str(value.dtype) else "segmentation"
    if len(shape) == 1:
        flags = torch.as_tensor(value)
        return "multi-label classification" if bool(((flags == 0) | (flags == 1)).all()) else "regression"
    return "regression" if "float" in str(value.dtype) else None


def is_integer(value: Any) -> bool:
    """Whether a value is one integer, also in an array or tensor of one entry."""
    if isinstance(value, bool):
        return False
    kind = getattr(value, "dtype", None)
    if kind is None:
        return isinstance(value, int)
    return "int" in str(kind) and math.prod(getattr(value, "shape", (0,))) == 1


def is_number(value: Any) -> bool:
    """Whether a value is a single number: also True, 1.0, or a tensor of one element."""
    if isinstance(value, Tensor):
        return value.numel() == 1
    if hasattr(value, "dtype"):
        return bool(value.size == 1)
    return isinstance(value, (bool, int, float))


def is_one_hot(value: Any) -> bool:
    """Whether a value is a vector of zeros with one 1."""
    if not hasattr(value, "dtype") or len(getattr(value, "shape", ())) != 1 or len(value) < 2:
        return False
    flags = torch.as_tensor(value)
    return bool(((flags == 0) | (flags == 1)).all()) and int((flags == 1).sum()) == 1


def describe(value: Any) -> str:
    """A short description for messages."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dictionary with the keys {sorted(map(str, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of ({', '.join(type(part).__name__ for part in value)})"
    return f"{type(value).__name__} {value!r:.60}"
