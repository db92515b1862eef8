"""Groups of points that a user's sampler draws by, such as classes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor


def find_groups(sampler: Any, size: int, draws_each_once: Callable[[], bool]) -> dict[int, Any] | None:
    """The group of each index, by what the sampler keeps: indices by group, or one label for each point.

    A label for each point may be something else, as a length: it groups only draws that are not a plain permutation.
    """
    owners = [sampler, getattr(sampler, "sampler", None)]
    values = [value for owner in owners for value in getattr(owner, "__dict__", {}).values()]
    for value in values:
        groups = indices_by_group(value, size)
        if groups is not None:
            return groups
    for value in values:
        labels = labels_of_points(value, size)
        if labels is not None and not draws_each_once():
            return dict(enumerate(labels))
    return None


def indices_by_group(value: Any, size: int) -> dict[int, Any] | None:
    """{group: indices} or [indices, ...], if they are different indices of at least half of the pool."""
    if not isinstance(value, (Mapping, list, tuple)) or not 2 <= len(value) <= size:
        return None
    groups: dict[int, Any] = {}
    total = 0
    for group, members in value.items() if isinstance(value, Mapping) else enumerate(value):
        indices: Sequence[Any] = as_list(members) if is_sequence(members) else [None]
        if not all(is_index(index, size) for index in indices):
            return None
        groups.update((index, group) for index in indices)
        total += len(indices)
    return groups if len(groups) == total >= size / 2 else None


def labels_of_points(value: Any, size: int) -> Sequence[Any] | None:
    if not is_sequence(value) or len(value) != size:
        return None
    labels = as_list(value)
    if not all(isinstance(label, (int, str)) for label in labels):
        return None
    return labels if 2 <= len(set(labels)) <= size / 2 else None


def is_sequence(value: Any) -> bool:
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        return bool(value.ndim == 1)
    return isinstance(value, (list, tuple, set, range))


def as_list(value: Any) -> Sequence[Any]:
    return value.tolist() if hasattr(value, "tolist") else list(value)


def is_index(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size
