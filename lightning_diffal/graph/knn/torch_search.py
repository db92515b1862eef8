"""Backend "torch": plain torch on any device, with pruning where that pays."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.brute_force import brute_force
from lightning_diffal.graph.knn.candidates import Candidates
from lightning_diffal.graph.knn.pruned_search import fraction_to_search, pruned_search, search_nearby_cells
from lightning_diffal.graph.knn.voronoi_cells import build_cells, positions_of_rank


def search_torch(
    points: Float[Tensor, "n d"],
    count: int,
    progress: Progress,
    ranks: Ranks = SINGLE_PROCESS,
    *,
    prune_from: int = 12_000,
    prune_up_to: float = 0.4,
) -> Candidates:
    """Candidates for the rows that this rank searches.

    Args:
        prune_from: In smaller pools, building cells costs more than it saves (benchmarks/bench_graph_backends.py).
        prune_up_to: Where a larger fraction of the pool remains to be searched, one product over all of it is faster.

    Cost: at most n² distances, far fewer where the points form clusters, divided evenly among ranks. Memory besides the
    result: that of `pruned_search`, or a few tiles of 8 MiB for a small pool.
    """
    own = ranks.own_rows(len(points))
    rows = torch.arange(own.start, own.stop, device=points.device)
    if len(points) >= prune_from:
        cells = build_cells(points, ranks)
        initial = search_nearby_cells(cells, positions_of_rank(cells, ranks), count)
        rows = cells.index[initial.query]
        if fraction_to_search(cells, initial) <= prune_up_to:
            return Candidates(rows, *pruned_search(cells, initial, progress))
    return Candidates(rows, brute_force(points, rows, count, progress), points[rows].norm(dim=1))
