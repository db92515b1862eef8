"""What a dataset makes its items of, where it keeps that in attributes: paths, arrays, an inner dataset."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from lightning_diffal.pool.dataset.content import to_bytes
from lightning_diffal.pool.dataset.items import LABEL_KEYS, LabelField, MapStyle

# Attributes that change while a dataset is used.
NOT_RAW = ("cache", "memo", "count", "history", "buffer")


def read_raw_data(
    dataset: MapStyle, indices: Sequence[int], label_field: LabelField, seen: frozenset[int] = frozenset()
) -> dict[str, bytes]:
    """Content of each attribute that holds one entry for each point, at some points; labels are left out."""
    seen = seen | {id(dataset)}
    if isinstance(dataset, Subset):
        return read_raw_data(dataset.dataset, [dataset.indices[index] for index in indices], label_field, seen)
    if isinstance(dataset, ConcatDataset):
        return read_concatenated(dataset, indices, label_field, seen)
    found = {}
    for name, value in getattr(dataset, "__dict__", {}).items():
        if id(value) in seen or not is_raw(name, value, len(dataset)):
            continue
        if isinstance(value, Dataset):
            inner = read_raw_data(value, indices, label_field, seen)
            found.update({f"{name}.{part}": content for part, content in inner.items()})
        else:
            rows = [entry_content(value[index], label_field) for index in indices]
            if None not in rows:
                found[name] = b"".join(row for row in rows if row is not None)
    return dict(sorted(found.items()))


def read_concatenated(
    dataset: "ConcatDataset[Any]", indices: Sequence[int], label_field: LabelField, seen: frozenset[int]
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for place, index in enumerate(indices):
        part = bisect_right(dataset.cumulative_sizes, index)
        start = dataset.cumulative_sizes[part - 1] if part else 0
        inner = read_raw_data(dataset.datasets[part], [index - start], label_field, seen)
        found.update({f"{place}.{name}": content for name, content in inner.items()})
    return found


def is_raw(name: str, value: Any, size: int) -> bool:
    """Whether an attribute may hold the data of each point: of the dataset's length, and no labels."""
    if name.startswith("_") or name.lower() in LABEL_KEYS or any(word in name.lower() for word in NOT_RAW):
        return False
    is_array = isinstance(value, Tensor) or hasattr(value, "__array__")
    if not (is_array or isinstance(value, (list, tuple, Dataset))) or hasattr(value, "iloc"):
        return False
    try:
        if len(value) != size:
            return False
    except (TypeError, NotImplementedError):
        return False
    # One number for each point is most likely its label.
    return not is_array or value.ndim > 1 or not any(kind in str(value.dtype) for kind in ("int", "bool", "float"))


def entry_content(value: Any, label_field: LabelField) -> bytes | None:
    """One point's entry; of paths the end, since folders move. None for numbers, which may be labels."""
    if isinstance(value, (str, PurePath)):
        return "/".join(PurePath(value).parts[-2:]).encode()
    if isinstance(value, (Mapping, tuple, list)):
        bare = label_field.remove(value) if label_field.where is None else value
        parts = bare.values() if isinstance(bare, Mapping) else bare
        contents = [content for part in parts if (content := entry_content(part, label_field)) is not None]
        return b"".join(contents) if contents else None
    if isinstance(value, Tensor) or hasattr(value, "tobytes"):
        return to_bytes(value)
    return None
