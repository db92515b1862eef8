"""Whether two datasets are the same, and whether a dataset gives the same item twice."""

import hashlib
from collections.abc import Mapping, Sized
from typing import Any

import torch
from torch import Tensor

from lightning_diffal.pool.items import MapStyle, without_label
from lightning_diffal.pool.randomness import temporary_seed

# Items that are compared, evenly spread over the dataset.
SAMPLES = 8


def fingerprint(dataset: MapStyle, size: int) -> str:
    """A short hash of the dataset's length and of what a model may see of a few of its items; labels are not read.

    Random augmentation does not change it: the items are taken under a fixed seed.
    """
    digest = hashlib.sha256(str(size).encode())
    with temporary_seed(0):
        for index in sample_indices(size):
            digest.update(to_bytes(without_label(dataset[index])))
    return f"{size}-{digest.hexdigest()[:16]}"


def size_of(fingerprint: str) -> int | None:
    """The number of points in a fingerprint, None if it is not one."""
    size = fingerprint.partition("-")[0]
    return int(size) if size.isdecimal() and len(size) < 20 else None


def is_random(dataset: MapStyle, size: int) -> bool:
    """Whether an item changes when it is asked for again."""

    def content(seed: int) -> list[bytes]:
        with temporary_seed(seed):
            return [to_bytes(without_label(dataset[index])) for index in sample_indices(size)[:4]]

    return content(1) != content(2)


def sample_indices(size: int) -> list[int]:
    return sorted({sample * (size - 1) // (SAMPLES - 1) for sample in range(SAMPLES)})


def length_of(dataset: MapStyle) -> int | None:
    """How many points a dataset has, None if it has no length."""
    try:
        return len(dataset) if isinstance(dataset, Sized) else None
    except (TypeError, NotImplementedError):
        return None


def to_bytes(value: Any) -> bytes:
    """The content of an item."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            value = value.to_dense()
        flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return str(value.dtype).encode() + bytes(flat.numpy())
    if isinstance(value, Mapping):
        return b"".join(str(key).encode() + to_bytes(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return b"".join(map(to_bytes, value))
    if hasattr(value, "tobytes"):  # arrays and images
        return bytes(value.tobytes())
    if isinstance(value, (int, float, str, bytes, bool)) or value is None:
        return repr(value).encode()
    return type(value).__qualname__.encode()  # its repr may hold an address
