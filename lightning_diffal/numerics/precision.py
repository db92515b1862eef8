"""How exact the arithmetic is: what is summed in float64, and how far a float32 search can be wrong."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

# One rounding in float32 changes a number by at most this share of it.
FLOAT32_ROUNDING = 2.0**-24


def wide_dtype(device: torch.device) -> torch.dtype:
    """The type for sums whose last digits decide between two points: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def surely_finite(values: Float[Tensor, "..."]) -> bool:
    """Whether no NaN or infinity is among them, by one sum, which is finite only if all its terms are.

    Checking each of them takes several times as long. It is needed where this is False: a sum may also overflow.
    """
    return math.isfinite(float(values.sum()))


def magnitude(values: Float[Tensor, "..."]) -> int:
    """The power of two next above the largest of them, or 0 where all are 0."""
    low, high = values.aminmax()
    return math.frexp(max(-float(low), float(high)))[1]


def times_two_to(exponent: int, values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """2ᵉ · values, without rounding; in two factors, since 2ᵉ itself may be too large or too small for the type."""
    return values if exponent == 0 else values * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)


def product_rounding(terms: int, dtype: torch.dtype) -> float:
    """How far |x|² + |y|² - 2x·y may be off where each is a sum of so many terms, as a share of |x|² + |y|²."""
    return (terms + 8) * torch.finfo(dtype).eps


def square_distance(both: Float[Tensor, "n t"], product: Float[Tensor, "n t"], terms: int) -> Float[Tensor, "n t"]:
    """|x|² + |y|² - 2x·y with `both` for the first two, each a sum of so many terms; 0 where rounding could make it."""
    square = torch.sub(both, product, alpha=2)
    return square.masked_fill_(square <= both * product_rounding(terms, square.dtype), 0.0)


def search_error(
    spread: Float[Tensor, " b"], norm: Float[Tensor, " b"], squared_distance: Float[Tensor, "*a b"], dimensions: int
) -> Float[Tensor, "*a b"]:
    """How far ρ = |x|² + |y|² - 2x·y in float32 may be from the true squared distance of x and y.

    ε = 2 (d + 8) u (2s + √ρ)² is the bound of a dot product of d terms, where s ≥ |x| and |y| ≤ s + √ρ, both taken from
    the origin the search works with. 8u|x|√ρ + 8u²|x|² is what storing x and y in float32 may add.
    A direct search, Σ (x - y)², errs less than that.
    """
    distance = squared_distance.sqrt()
    rounding = FLOAT32_ROUNDING * norm
    return 2 * (dimensions + 8) * FLOAT32_ROUNDING * (2 * spread + distance).square() + 8 * rounding * (
        distance + rounding
    )


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Matrix products in float32 as float32: neither autocast nor the user's TF32 or bfloat16 setting applies."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
