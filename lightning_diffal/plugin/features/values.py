"""Rows of features that the user has computed: tensors, arrays and files."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

FILE_SUFFIXES: Final = (".npy", ".safetensors")


def to_tensor(features: Any) -> Tensor:
    """A tensor or array as a tensor, without a copy where possible."""
    if isinstance(features, Tensor):
        return features.detach().cpu()
    if features.dtype.hasobject or features.dtype.kind not in "biuf":
        raise ValueError(f"features=...: an array of floating-point numbers is needed, {features.dtype} was given.")
    # Arrays of another byte order, read-only ones and views with negative strides are copied.
    native = np.ascontiguousarray(features, features.dtype.newbyteorder("="))
    return torch.from_numpy(native if native.flags.writeable else native.copy())


def check_values(caller: str, values: Tensor) -> None:
    """Refuse what cannot be one row of numbers for each point, whatever the dataset."""
    where = f"{caller}(features=...)"
    if values.layout != torch.strided:
        raise ValueError(f"{where}: a dense tensor is needed, one of layout {values.layout} was given.")
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(
            f"{where}: one row for each point, shape (n, d), is needed, {tuple(values.shape)} was given."
            + (" flatten(1) makes rows of it." if values.ndim > 2 else "")
        )
    if not values.dtype.is_floating_point:
        raise ValueError(
            f"{where}: floating-point numbers are needed, {values.dtype} was given. Numbers of classes or tokens are "
            "no features; where integers are measurements, .float() makes features of them."
        )
    check_rows(where, values)


def check_rows(where: str, values: Tensor) -> None:
    """Refuse features that are not numbers, or that are the same for all points."""
    low, high = values.amin(dim=1), values.amax(dim=1)
    wrong = (~(low.isfinite() & high.isfinite())).nonzero()[:, 0]
    if len(wrong):
        raise ValueError(
            f"{where}: {len(wrong)} of {len(values)} rows hold NaN or infinity, the first is row {int(wrong[0])}. "
            "Finite numbers are needed."
        )
    if len(values) > 1 and bool((values.amin(dim=0) == values.amax(dim=0)).all()):
        raise ValueError(f"{where}: all {len(values)} rows are the same. Features that tell points apart are needed.")


def check_file(caller: str, path: Path) -> None:
    """Refuse a file that is not there, or holds no rows of features."""
    where = f"{caller}(features={str(path)!r})"
    if path.suffix not in FILE_SUFFIXES:
        raise ValueError(f"{where}: a file {' or '.join(FILE_SUFFIXES)} is needed.")
    if not path.is_file():
        raise ValueError(f"{where}: there is no such file; its absolute path is {str(path.absolute())!r}.")
    try:
        values = read_file(path)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{where}: it cannot be read: {error}") from error
    check_values(caller, values)


def read_file(path: Path) -> Tensor:
    """The rows in a file. Of a `.safetensors` file the only tensor, or the one named "features"."""
    if path.suffix == ".npy":
        return to_tensor(np.load(path, mmap_mode="c", allow_pickle=False))
    try:
        from safetensors import SafetensorError  # noqa: PLC0415, an extra
        from safetensors.torch import load_file  # noqa: PLC0415
    except ImportError as error:
        raise ValueError("the package safetensors is needed: pip install safetensors.") from error
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"this is not a safetensors file ({error}).") from error
    if len(tensors) != 1 and "features" not in tensors:
        raise ValueError(f'one tensor, or one named "features", is needed; it holds {", ".join(tensors) or "none"}.')
    return tensors["features"] if "features" in tensors else next(iter(tensors.values()))
