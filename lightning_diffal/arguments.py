"""Checks of the arguments of public calls. Error messages name the argument, what was given, and what is needed."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., object])

# Wraps a loop so that the layer above can draw a bar over it. `iter` draws none, `tqdm.tqdm` does.
Progress: TypeAlias = Callable[[Sequence[int]], Iterable[int]]


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


def check_matrix(caller: str, name: str, matrix: object, rows: int, columns: int | None, device: torch.device) -> None:
    """Refuse what is not a floating-point tensor (rows, columns) on `device`. None allows any number of columns."""
    given = f"{matrix.dtype} of shape {tuple(matrix.shape)}" if isinstance(matrix, Tensor) else type(matrix).__name__
    if (
        not isinstance(matrix, Tensor)
        or not matrix.dtype.is_floating_point
        or matrix.ndim != 2
        or matrix.shape != (rows, columns or max(1, matrix.shape[1]))
    ):
        raise ValueError(
            f"{caller}({name}=...): a floating-point tensor of shape ({rows}, {columns or 'd'}) is needed, one row for "
            f"each point, {given} was given."
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
