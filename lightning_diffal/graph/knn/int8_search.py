"""All distances as products of 8-bit integers; only where those cannot rule a point out, in float32."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.knn.candidates import Candidates
from lightning_diffal.graph.knn.int8_rows import HEIGHT, Int8Rows
from lightning_diffal.graph.knn.local_order import local_order
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
) -> Candidates:
    """The `count` nearest points of each row, itself among them, in no order.

    With a basis, the integers are those of the points in it, and the rows an order in which near points follow each
    other. Cost: r n distances in 8-bit integers, half of them where the rows are all points, and in float32 those that
    remain: of trained features about 30 for each row, of white noise 50.
    """
    order = None
    if len(rows) == len(points):
        order = local_order(points) if basis is None else rows
        rows = torch.arange(len(points), device=points.device)
    search = Int8Rows(points, count, basis, order)
    result = None if order is None else symmetric_search(search, progress)
    if result is None:
        result = (torch.empty_like(rows[:, None].expand(-1, count)), torch.empty_like(points[rows, 0]))

        def search_part(start: int) -> None:
            part = slice(start, start + HEIGHT)
            result[0][part], result[1][part] = search(rows[part])

        run_parallel(search_part, range(0, len(rows), HEIGHT), points.device, progress)
    found, spread = result
    return Candidates(rows, found, spread) if order is None else Candidates(order, order[found], spread)


def prefers_int8(points: Float[Tensor, "n d"]) -> bool:
    """Whether `int8_search` is faster than `brute_force` for these points."""
    n, d = points.shape
    suits = points.device.type == "cpu" and n >= MIN_POINTS and MIN_DIMENSIONS <= d <= MAX_DIMENSIONS
    return suits and has_fast_int8()
