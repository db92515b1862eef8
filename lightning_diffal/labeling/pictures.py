"""An item of a dataset as something a person can look at: its file, its text, or a PNG made of its numbers."""

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from lightning_diffal.pool.dataset.classes import describe
from lightning_diffal.pool.dataset.items import LabelField, MapStyle

# Longest text that stands for an item which is neither a picture nor text.
MAX_TEXT = 2000

# Pictures that a browser shows as they are. Not .svg, which may hold scripts.
VIEWABLE = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".bmp"}


def item_path(dataset: MapStyle, index: int) -> Path | None:
    """The file of a point, where the dataset keeps one path for each: in a list like `samples`, or an inner dataset."""
    if isinstance(dataset, Subset):
        return item_path(dataset.dataset, int(dataset.indices[index]))
    if isinstance(dataset, ConcatDataset):
        part = bisect_right(dataset.cumulative_sizes, index)
        start = dataset.cumulative_sizes[part - 1] if part else 0
        return item_path(dataset.datasets[part], index - start)
    root = getattr(dataset, "root", None)
    for name, value in getattr(dataset, "__dict__", {}).items():
        if name.startswith("_") or value is dataset or not has_length(value, len(dataset)):
            continue
        if isinstance(value, Dataset):
            found = item_path(value, index)
        else:
            found = path_in(value[index], root) if isinstance(value, (list, tuple)) else None
        if found is not None:
            return found
    return None


def has_length(value: Any, length: int) -> bool:
    try:
        return isinstance(value, (list, tuple, Dataset)) and len(value) == length  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return False


def path_in(value: Any, root: Any = None) -> Path | None:
    """The file that an entry names: a path, or the first of a tuple that is one."""
    if isinstance(value, (tuple, list)):
        return next((path for part in value if (path := path_in(part, root)) is not None), None)
    if not isinstance(value, (str, PurePath)) or len(str(value)) > MAX_TEXT:
        return None
    folders = [Path(), *([Path(root)] if isinstance(root, (str, PurePath)) else [])]
    try:
        return next((path.absolute() for folder in folders if (path := folder / value).is_file()), None)
    except (OSError, ValueError):  # no name of a file, as with a line break or a zero byte in it
        return None


def show_item(item: Any, label_field: LabelField, render: Callable[[Any], Any] | None) -> Path | str | bytes:
    """A file, a text, or the bytes of a PNG.

    Args:
        item: As the dataset gives it. Its label, if it has one, is left out.
        render: The user's function: an item to a path, a text, an image, or the bytes of a PNG.
    """
    if render is not None:
        shown = render(item)
        if isinstance(shown, (bytes, str)):
            return shown
        if isinstance(shown, PurePath):
            return Path(shown)
        picture = as_png(shown)
        if picture is None:
            raise ValueError(
                f"People(render=...): it gave {describe(shown)} for an item. A path, a text, an image of PIL's, or a "
                "tensor or array (h, w), (c, h, w) or (h, w, c) is needed."
            )
        return picture
    content = content_of(label_field.remove(item))
    if isinstance(content, (str, PurePath)):
        return path_in(content) or str(content)
    picture = as_png(content)
    return picture if picture is not None else f"{plain(content)}"[:MAX_TEXT]


def content_of(item: Any) -> Any:
    """What to show of an item without its label: the first text or picture in it."""
    parts = list(item.values()) if isinstance(item, Mapping) else item
    if not isinstance(parts, (list, tuple)):
        return item
    shown = [part for part in parts if isinstance(part, (str, PurePath)) or as_pixels(part) is not None]
    return shown[0] if shown else parts[0] if len(parts) == 1 else item


def plain(value: Any) -> Any:
    """Numbers in short, for people to read."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, threshold=64)
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return value


def as_png(value: Any) -> bytes | None:
    """A picture as a PNG; None if the value is none."""
    pixels = as_pixels(value)
    return encode_png(pixels) if pixels is not None else None


def as_pixels(value: Any) -> Any:
    """An array (h, w, c) of bytes: c is 1 (gray), 3 (RGB) or 4 (with alpha). None if the value is no picture."""
    if hasattr(value, "getpixel") and hasattr(value, "convert"):  # an image of PIL's
        value = np.asarray(value if value.mode in ("L", "RGB", "RGBA") else value.convert("RGB"))
    channels_first = isinstance(value, Tensor)  # in torch; arrays have them last, where both are possible
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "buif" or value.ndim not in (2, 3):
        return None
    if value.ndim == 2:
        value = value[:, :, None]
    elif value.shape[0] in (1, 3, 4) and (channels_first or value.shape[2] not in (1, 3, 4)):
        value = np.moveaxis(value, 0, 2)
    if value.shape[2] not in (1, 3, 4) or 0 in value.shape:
        return None
    return to_bytes(value)


def to_bytes(pixels: Any) -> Any:
    """Bytes stay, [0, 1] and [0, 255] are taken as they are, other ranges, as of normalized pictures, are stretched."""
    if pixels.dtype == np.uint8:
        return pixels
    numbers = np.nan_to_num(pixels.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(numbers.min()), float(numbers.max())
    if low >= 0 and high <= 1:
        numbers = numbers * 255
    elif not (low >= 0 and high <= 255):
        numbers = (numbers - low) * (255 / (high - low) if high > low else 0)
    return numbers.round().astype(np.uint8)


def encode_png(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The file format of the PNG specification: signature, header, data, end; each row has filter 0."""
    height, width, channels = pixels.shape
    color = {1: 0, 3: 2, 4: 6}[channels]

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    data = zlib.compress(np.ascontiguousarray(rows).tobytes())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
