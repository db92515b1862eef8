"""Backend "torch": plain torch on any device, with pruning where that pays."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.brute_force import brute_force
from lightning_diffal.graph.knn.candidates import Candidates
from lightning_diffal.graph.knn.int8_search import INT8_COST, int8_search, prefers_int8
from lightning_diffal.graph.knn.projection import choose_basis
from lightning_diffal.graph.knn.pruned_search import pruned_search, remaining_work, search_nearby_cells
from lightning_diffal.graph.knn.voronoi_cells import build_cells, positions_of_rank

# Where cells rule out more, and so pay in smaller pools.
LOW_DIMENSIONS = 64


def search_torch(
    points: Float[Tensor, "n d"],
    count: int,
    progress: Progress,
    ranks: Ranks = SINGLE_PROCESS,
    *,
    prune_from: int | None = None,
    prune_up_to: float = 0.4,
    project_above: int = 160,
) -> Candidates:
    """Candidates for the rows that this rank searches.

    Args:
        prune_from: In smaller pools, building cells costs more than it saves (benchmarks/bench_graph_backends.py). By
            default 8,000 points in up to 64 dimensions, 12,000 in more.
        prune_up_to: Where a larger fraction of the work remains, one product with all points is faster.
        project_above: In more dimensions, a pool is pruned by its leading principal directions.

    Cost: at most n² distances, far fewer where the points form clusters, divided evenly among ranks. Memory besides the
    result: that of `pruned_search`, or a few tiles of 8 MiB for a small pool.
    """
    if prune_from is None:
        prune_from = 8_000 if points.shape[1] <= LOW_DIMENSIONS else 12_000
    own = ranks.own_rows(len(points))
    rows = torch.arange(own.start, own.stop, device=points.device)
    int8 = prefers_int8(points)
    max_work = prune_up_to * (INT8_COST if int8 else 1)
    project = points.shape[1] > project_above
    basis = choose_basis(points, count, max_work, ranks) if project and len(points) >= prune_from else None
    if len(points) >= prune_from and project == (basis is not None):
        cells = build_cells(points, ranks, basis)
        query = positions_of_rank(cells, ranks)
        rows = cells.index[query]
        if remaining_work(cells, query, count) <= max_work:
            return Candidates(rows, *pruned_search(cells, search_nearby_cells(cells, query, count), progress))
    if int8:
        return int8_search(points, rows, count, progress, basis)
    return Candidates(rows, brute_force(points, rows, count, progress), points[rows].norm(dim=1))
