"""Floating-point precision: what is summed in float64, exact scaling, and the error bound of a float32 search."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

# The unit roundoff of float32: one rounding changes a number by at most this fraction of it.
FLOAT32_ROUNDING = 2.0**-24
# 2ᵉ and 2⁻ᵉ are normal numbers of float32 up to here.
MAX_FACTOR = 126


def wide_dtype(device: torch.device) -> torch.dtype:
    """The type for sums whose last digits decide between two points: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def at_least_float32(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """float16 and bfloat16 as float32; float32 and float64 unchanged."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def max_exponent(values: Float[Tensor, "..."]) -> int:
    """The smallest e with |value| < 2ᵉ for all values; 0 if all are 0."""
    low, high = values.aminmax()
    return math.frexp(max(-float(low), float(high)))[1]


def ldexp(values: Float[Tensor, "..."], exponent: int) -> Float[Tensor, "..."]:
    """2ᵉ · values, without rounding; in two factors where 2ᵉ itself may overflow or underflow, as in torch.ldexp."""
    if exponent == 0:
        return values
    if abs(exponent) < MAX_FACTOR:
        return values * 2.0**exponent
    return values * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)


def ldexp_(values: Float[Tensor, "..."], exponent: int) -> None:
    """The same in place."""
    if exponent != 0:
        values.mul_(2.0 ** (exponent // 2)).mul_(2.0 ** (exponent - exponent // 2))


def product_rounding(terms: int, dtype: torch.dtype) -> float:
    """The largest error of |x|² + |y|² - 2x·y as a fraction of |x|² + |y|², where each is a sum of `terms` terms."""
    return (terms + 8) * torch.finfo(dtype).eps


def distance_from_product(
    square_sum: Float[Tensor, "n t"], product: Float[Tensor, "n t"], terms: int
) -> Float[Tensor, "n t"]:
    """|x|² + |y|² - 2x·y from |x|² + |y|² and x·y, sums of `terms` terms; 0 where it is no more than rounding error."""
    square = torch.sub(square_sum, product, alpha=2)
    return square.masked_fill_(square <= square_sum * product_rounding(terms, square.dtype), 0.0)


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
