"""The outermost public calls refuse bad arguments themselves, in sentences."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

# Wraps a loop so that the layer above can draw a bar over it. `iter` draws none, `tqdm.tqdm` does.
Progress: TypeAlias = Callable[[Sequence[int]], Iterable[int]]


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
