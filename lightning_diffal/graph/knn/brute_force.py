"""Candidates for the nearest neighbors in plain torch, on any device."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.cell_search import first_look, search_cells, share_to_search
from lightning_diffal.graph.knn.cells import cut, dealt
from lightning_diffal.graph.row_partition import Share
from lightning_diffal.numerics.threads import side_by_side
from lightning_diffal.numerics.topk import in_groups, smallest

# Below this, cutting the pool into cells costs more than it saves (benchmarks/bench_graph_backends.py).
CELLS_FROM = 12_000
# And where they leave more than this share of the pool to search, one matrix product over all of it is faster.
CELLS_UP_TO = 0.4
TILE_ENTRIES = 2**21


def search_torch(
    points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks = SINGLE_PROCESS
) -> tuple[Int[Tensor, " r"], Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The points this rank searches from, the `count` nearest of each, and the spread its float32 error grows with.

    Each point is searched from on one rank, and is among its own nearest.

    Cost: at most n² distances, far fewer where the points form clusters, shared out evenly. Memory beside the result:
    that of the cells (`search_cells`), or a few tiles of 8 MiB for a small pool.
    """
    rows = Share(ranks, len(points)).indices(points.device)
    if len(points) >= CELLS_FROM:
        cells = cut(points, ranks)
        surroundings = first_look(cells, dealt(cells, ranks), count)
        rows = cells.order[surroundings.of]
        if share_to_search(cells, surroundings) <= CELLS_UP_TO:
            return rows, *search_cells(cells, surroundings, progress)
    others, half_square = in_groups(points)
    found = torch.empty(len(rows), count, dtype=torch.long, device=points.device)
    height = max(1, TILE_ENTRIES // len(others))

    def search(start: int) -> None:
        # |y|²/2 - x·y orders the points y as their distance to x does.
        nearness = torch.addmm(half_square, points[rows[start : start + height]], others.T, alpha=-1)  # (height, n)
        found[start : start + height] = smallest(nearness, count)

    side_by_side(search, range(0, len(rows), height), points.device, progress)
    return rows, found, points[rows].norm(dim=1)
