"""All distances as products of 8-bit integers; only where those cannot rule a point out, in float32."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.knn.int8_rows import HEIGHT, Int8Rows
from lightning_diffal.graph.knn.symmetric_search import symmetric_search
from lightning_diffal.numerics.int8 import MAX_DIMENSIONS, has_fast_int8
from lightning_diffal.numerics.threads import run_parallel

# In fewer dimensions or points, float32 is as fast; in more dimensions an int32 might not hold the sums.
MIN_DIMENSIONS, MIN_POINTS = 97, 2048
# The time of a product in 8-bit integers, as a fraction of that in float32.
INT8_COST = 0.35


def int8_search(
    points: Float[Tensor, "n d"],
    rows: Int[Tensor, " r"],
    count: int,
    progress: Progress,
    basis: Float[Tensor, "d m"] | None = None,
) -> tuple[Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The `count` nearest points of each row, itself among them, in no order, and what the float32 error grows with.

    With a basis, the integers are those of the points in it. Cost: r n distances in 8-bit integers, half of them where
    the rows are all points, and in float32 those that remain: of trained features about 30 for each row, of white noise
    50.
    """
    search = Int8Rows(points, count, basis)
    if len(rows) == len(points):
        result = symmetric_search(search, progress)
        if result is not None:
            return result[0][rows], result[1][rows]
    found = torch.empty(len(rows), count, dtype=torch.long, device=points.device)
    spread = torch.empty_like(points[rows, 0])

    def search_part(start: int) -> None:
        part = slice(start, start + HEIGHT)
        found[part], spread[part] = search(rows[part])

    run_parallel(search_part, range(0, len(rows), HEIGHT), points.device, progress)
    return found, spread


def prefers_int8(points: Float[Tensor, "n d"]) -> bool:
    """Whether `int8_search` is faster than `brute_force` for these points."""
    n, d = points.shape
    suits = points.device.type == "cpu" and n >= MIN_POINTS and MIN_DIMENSIONS <= d <= MAX_DIMENSIONS
    return suits and has_fast_int8()
