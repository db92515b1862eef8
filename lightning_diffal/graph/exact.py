"""Candidates for the nearest neighbors in plain torch, on any device."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.cells import cut, first_look, search_cells, share_to_search
from lightning_diffal.graph.lowest import in_groups, smallest
from lightning_diffal.graph.threads import side_by_side

# Below this, cutting the pool into cells costs more than it saves (benchmarks/bench_graph_backends.py).
CELLS_FROM = 12_000
# And where they leave more than this share of the pool to search, one matrix product over all of it is faster.
CELLS_UP_TO = 0.4
TILE_ENTRIES = 2**21


def search_torch(
    points: Float[Tensor, "n d"], count: int, progress: Progress
) -> tuple[Int[Tensor, "n count"], Float[Tensor, " n"]]:
    """The `count` nearest points of each point, itself among them, and the spread its float32 error grows with.

    Cost: at most n² distances, far fewer where the points form clusters. Memory beside the result: that of the cells
    (`search_cells`), or a few tiles of 8 MiB for a small pool.
    """
    if len(points) >= CELLS_FROM:
        cells = cut(points)
        surroundings = first_look(cells, count)
        if share_to_search(cells, surroundings) <= CELLS_UP_TO:
            return search_cells(cells, surroundings, torch.arange(len(points), device=points.device), progress)
    others, half_square = in_groups(points)
    found = torch.empty(len(points), count, dtype=torch.long, device=points.device)
    height = max(1, TILE_ENTRIES // len(others))

    def search(start: int) -> None:
        # |y|²/2 - x·y orders the points y as their distance to x does.
        nearness = torch.addmm(half_square, points[start : start + height], others.T, alpha=-1)  # (height, n)
        found[start : start + height] = smallest(nearness, count)

    side_by_side(search, range(0, len(points), height), points.device, progress)
    return found, points.norm(dim=1)
