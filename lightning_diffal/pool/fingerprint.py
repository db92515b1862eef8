"""Whether two datasets are the same, and whether one gives the same item twice."""

import hashlib
from collections.abc import Mapping, Sized
from typing import Any

import torch
from torch import Tensor

from lightning_diffal.pool.items import MapStyle, without_label
from lightning_diffal.pool.randomness import seeded

# So many items are looked at, evenly spread.
LOOKS = 8


def fingerprint(dataset: MapStyle, size: int) -> str:
    """A short hash of the dataset's length and of what a model may see of a few of its items; labels are not read.

    Random augmentation does not change it: the items are taken under a fixed seed.
    """
    digest = hashlib.sha256(str(size).encode())
    with seeded(0):
        for index in looked_at(size):
            digest.update(bytes_of(without_label(dataset[index])))
    return f"{size}-{digest.hexdigest()[:16]}"


def looks_random(dataset: MapStyle, size: int) -> bool:
    """Whether an item changes when it is asked for again."""

    def look(seed: int) -> list[bytes]:
        with seeded(seed):
            return [bytes_of(without_label(dataset[index])) for index in looked_at(size)[:4]]

    return look(1) != look(2)


def looked_at(size: int) -> list[int]:
    return sorted({place * (size - 1) // (LOOKS - 1) for place in range(LOOKS)})


def length_of(dataset: MapStyle) -> int | None:
    """How many points a dataset has, None if it does not say."""
    try:
        return len(dataset) if isinstance(dataset, Sized) else None
    except (TypeError, NotImplementedError):
        return None


def bytes_of(value: Any) -> bytes:
    """The content of an item."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            value = value.to_dense()
        flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return str(value.dtype).encode() + bytes(flat.numpy())
    if isinstance(value, Mapping):
        return b"".join(str(key).encode() + bytes_of(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return b"".join(map(bytes_of, value))
    if hasattr(value, "tobytes"):  # arrays and images
        return bytes(value.tobytes())
    if isinstance(value, (int, float, str, bytes, bool)) or value is None:
        return repr(value).encode()
    return type(value).__qualname__.encode()  # its repr may hold an address
