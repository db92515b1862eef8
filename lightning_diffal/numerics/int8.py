"""Points rounded to 8-bit integers: products four times as fast as in float32, with a proven bound of their error.

Each point x is stored as integers q with |q| ≤ 127 and a scale s of its own, and how far s·q is from x:

    |x - y| ≥ |s_x q_x - s_y q_y| - e_x - e_y        with e = |x - s·q|, about 1% of |x|

The products q_x·q_y are sums of integers and do not round.
"""

import time
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from lightning_diffal.numerics.precision import FLOAT32_ROUNDING
from lightning_diffal.numerics.threads import run_parallel, single_thread

LARGEST = 127
# A sum of more products might not fit in an int32.
MAX_DIMENSIONS = 2**31 // LARGEST**2 - 1
# Where the coordinates of a point differ so much that rounding them costs more than this fraction of its norm, the
# points are rotated at random first: then no coordinate is much larger than the others, and it costs 0.8%.
UNEVEN = 0.016
# Points rounded at a time, so that the copies stay in the cache.
ROUNDED_ROWS = 512


@dataclass(frozen=True, eq=False)
class Int8Points:
    code: Int8[Tensor, "n d"]
    scale: Float[Tensor, " n"]
    square: Float[Tensor, " n"]  # |s·q|², rounded down
    error: Float[Tensor, " n"]  # at least |x - s·q|


def quantize(points: Float[Tensor, "n d"]) -> Int8Points:
    """Cost: O(n d), and O(n d²) where the coordinates are uneven."""
    norm, size = points.norm(dim=1), points.shape[1]
    # The sums and products of float32 that the squares and errors take part in.
    rounding = 2 * (size + 16) * FLOAT32_ROUNDING
    codes = round_to_int8(points, norm, rounding)
    if float(codes.error.sum()) > UNEVEN * float(norm.sum()):
        generator = torch.Generator(device=points.device).manual_seed(0)
        normal = torch.randn(size, size, generator=generator, device=points.device, dtype=torch.float64)
        # d coordinates, each a product of d terms that may be off by d u |x|.
        rounding += size**1.5 * FLOAT32_ROUNDING
        codes = round_to_int8(points @ torch.linalg.qr(normal).Q.float(), norm, rounding)
    return codes


def round_to_int8(points: Float[Tensor, "n d"], norm: Float[Tensor, " n"], rounding: float) -> Int8Points:
    """The points as integers; `rounding` is the fraction of the norm by which a bound may be wrong."""
    code = torch.empty_like(points, dtype=torch.int8)
    scale, square, error = (torch.empty_like(norm) for _ in range(3))

    def round_part(start: int) -> None:
        rows = slice(start, start + ROUNDED_ROWS)
        x = points[rows]
        low, high = x.aminmax(dim=1)
        scale[rows] = torch.maximum(high, -low).div_(LARGEST).clamp_min_(torch.finfo(x.dtype).tiny)
        q = (x / scale[rows, None]).round_().clamp_(-LARGEST, LARGEST)
        code[rows] = q
        q *= scale[rows, None]
        square[rows], error[rows] = q.square().sum(dim=1), (x - q).norm(dim=1)

    run_parallel(round_part, range(0, len(points), ROUNDED_ROWS), points.device)
    return Int8Points(code, scale, square.mul_(1 - rounding), error.mul_(1 + rounding).add_(norm, alpha=rounding))


@cache
def has_fast_int8() -> bool:
    """Whether products of 8-bit integers are at least twice as fast as in float32 on this CPU; tried once."""
    x = torch.ones(256, 512, device="cpu")
    code, product, seconds = x.to(torch.int8), x.new_empty(256, 256, dtype=torch.int32), []
    try:
        torch._int_mm(code, code.T, out=product)
    except (AttributeError, RuntimeError):
        return False
    with single_thread():
        for multiply in (lambda: x @ x.T, lambda: torch._int_mm(code, code.T, out=product)):
            times = []
            for _ in range(5):
                start = time.thread_time()  # of this thread alone, however busy the machine is
                multiply()
                times.append(time.thread_time() - start)
            seconds.append(min(times))
    return seconds[1] < seconds[0] / 2
