"""Nearest neighbors by all distances, as matrix products in tiles."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.numerics.threads import run_parallel
from lightning_diffal.numerics.tiles import TILE_ENTRIES, tile_height
from lightning_diffal.numerics.topk import pad_to_groups, topk_grouped


def brute_force(
    points: Float[Tensor, "n d"], rows: Int[Tensor, " r"], count: int, progress: Progress
) -> Int[Tensor, "r count"]:
    """The `count` nearest points of each row, itself among them, in no order. Cost: r n distances, in float32."""
    others, half_square = pad_to_groups(points)
    found = torch.empty(len(rows), count, dtype=torch.long, device=points.device)
    height = tile_height(len(others), 2 * TILE_ENTRIES)

    def search(start: int) -> None:
        part = slice(start, start + height)
        found[part] = nearest_by_products(points[rows[part]], others, half_square, count)

    run_parallel(search, range(0, len(rows), height), points.device, progress)
    return found


def nearest_by_products(
    points: Float[Tensor, "b d"], others: Float[Tensor, "n d"], half_square: Float[Tensor, " n"], count: int
) -> Int[Tensor, "b count"]:
    """The columns of the `count` nearest of the others; n must be a multiple of GROUP, see `pad_to_groups`."""
    # |y|²/2 - x·y orders the points y as their distance to x does.
    return topk_grouped(torch.addmm(half_square, points, others.T, alpha=-1), count)
