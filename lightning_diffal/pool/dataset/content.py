"""The content of items as bytes, to compare and to hash."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor


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
    return str(
        value if isinstance(value, PurePath) else type(value).__qualname__
    ).encode()  # a repr may hold an address


def entries(value: Any, key: str = "") -> dict[str, Any]:
    """The tensors, arrays, numbers and strings in an item, each by its place."""
    if isinstance(value, Mapping):
        parts = [(f"{key}.{name}", part) for name, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{key}.{position}", part) for position, part in enumerate(value)]
    else:
        return {key: value}
    return {name: leaf for place, part in parts for name, leaf in entries(part, place).items()}


def shape_of(value: Any) -> str:
    return f"{type(value).__name__} {tuple(getattr(value, 'shape', ()))} {getattr(value, 'dtype', '')}"
