"""Candidates for the nearest neighbors in plain torch, on any device."""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.cells import search_cells

Progress = Callable[[Sequence[int]], Iterable[int]]

# Below this, building cells costs more than they save (benchmarks/bench_graph_backends.py).
CELLS_FROM = 4096
TILE_BYTES = 2**24


def search_torch(
    points: Float[Tensor, "n d"], count: int, progress: Progress
) -> tuple[Int[Tensor, "n count"], Float[Tensor, " n"]]:
    """The `count` nearest points of each point, itself among them, and the spread its float32 error grows with.

    Cost: at most n² distances, far fewer where the points form clusters. Memory beside the result: that of the cells
    (`search_cells`), or one tile of distances of 16 MiB for a small pool.
    """
    if len(points) >= CELLS_FROM and count <= len(points) // 8:
        return search_cells(points, count, progress)
    square = points.square().sum(dim=1)
    found = torch.empty(len(points), count, dtype=torch.long, device=points.device)
    height = max(1, TILE_BYTES // (4 * len(points)))
    for start in progress(range(0, len(points), height)):
        # |y|²/2 - x·y orders the points y as their distance to x does.
        nearness = torch.addmm(square / 2, points[start : start + height], points.T, alpha=-1)  # (height, n)
        found[start : start + height] = nearness.topk(count, largest=False, sorted=False).indices
    return found, square.sqrt()
