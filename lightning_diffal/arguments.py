"""Checks of the arguments of public calls. Error messages name the argument, what was given, and what is needed."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., object])

# Wraps a loop so that the layer above can draw a bar over it. `iter` draws none, `tqdm.tqdm` does.
Progress: TypeAlias = Callable[[Sequence[int]], Iterable[int]]


FLOATS: Final = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def skip_type_check(function: Function) -> Function:
    """Mark a public call that checks its own arguments.

    The shapes in all other signatures are checked by beartype under pytest. Here that would come first, and tests would
    see another error than users do.
    """
    function.__no_type_check__ = True  # type: ignore[attr-defined]
    return function


def check_count(caller: str, name: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{caller}({name}={value!r}): a whole number of at least 1 is needed.")


def check_positive(caller: str, name: str, value: object) -> None:
    """Refuse what is not a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"{caller}({name}={value!r:.60}): a positive number is needed.")


def check_share(caller: str, name: str, value: object) -> None:
    """Refuse what is not a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{caller}({name}={value!r:.60}): a number from 0 to 1 is needed.")


def check_flag(caller: str, name: str, value: object) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{caller}({name}={value!r:.60}): True or False is needed.")


def check_function(caller: str, name: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise ValueError(f"{caller}({name}={value!r:.60}): a function is needed.")


def check_floats(caller: str, name: str, value: object) -> None:
    """Refuse what is not a dense tensor of floating-point numbers that torch computes with."""
    tensor = dense_tensor(caller, name, value, "a floating-point tensor")
    if tensor.dtype not in FLOATS:
        raise ValueError(
            f"{caller}({name}=...): a floating-point tensor of 16, 32 or 64 bits is needed, {tensor.dtype} of shape "
            f"{tuple(tensor.shape)} was given."
        )


def check_integers(caller: str, name: str, value: object, hint: str = "") -> None:
    """Refuse what is not a dense tensor of integers."""
    tensor = dense_tensor(caller, name, value, "a tensor")
    if tensor.dtype not in INTEGERS:
        raise ValueError(f"{caller}({name}=...): integers are needed, {tensor.dtype} was given.{hint}")


def dense_tensor(caller: str, name: str, value: object, what: str) -> Tensor:
    """The value, if it is a tensor that is neither sparse nor quantized."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{caller}({name}=...): {what} is needed, {type(value).__name__} was given.")
    layout = "quantized" if value.is_quantized else str(value.layout)
    if layout != str(torch.strided):
        raise ValueError(f"{caller}({name}=...): a dense tensor is needed, a tensor of layout {layout} was given.")
    return value


def check_matrix(caller: str, name: str, matrix: object, rows: int, columns: int | None, device: torch.device) -> None:
    """Refuse what is not a floating-point tensor (rows, columns) on `device`. None allows any number of columns."""
    check_floats(caller, name, matrix)
    assert isinstance(matrix, Tensor)  # refused above if not
    if matrix.ndim != 2 or matrix.shape != (rows, columns or max(1, matrix.shape[1])):
        raise ValueError(
            f"{caller}({name}=...): a floating-point tensor of shape ({rows}, {columns or 'd'}) is needed, one row for "
            f"each point, {matrix.dtype} of shape {tuple(matrix.shape)} was given."
        )
    if matrix.device != device:
        raise ValueError(f"{caller}({name}=...): it is on {matrix.device}, the labels are on {device}. Move one.")


def finite_rows(matrix: Tensor) -> Tensor:
    """Whether each row (n, m) holds neither NaN nor infinity; ten times as fast as `isfinite` of every number."""
    return matrix.amin(dim=1).isfinite() & matrix.amax(dim=1).isfinite()


def check_finite(caller: str, name: str, finite: Tensor) -> None:
    """Refuse an argument of which a row is not finite."""
    if not bool(finite.all()):
        wrong = (~finite).nonzero()[:, 0]
        raise ValueError(
            f"{caller}({name}=...): {len(wrong)} of {len(finite)} rows hold NaN or infinity, the first is row "
            f"{int(wrong[0])}. Did the training diverge, or a half-precision layer overflow?"
        )
