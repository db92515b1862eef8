"""The outermost public calls refuse bad arguments themselves, in sentences."""

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
    """Mark a public call that says in words what is wrong with its arguments.

    The shapes in all other signatures are checked by beartype under pytest. Here that would come first, and tests would
    see another error than users do.
    """
    function.__no_type_check__ = True  # type: ignore[attr-defined]
    return function


def check_count(caller: str, name: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{caller}({name}={value!r}): a whole number of at least 1 is needed.")


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
