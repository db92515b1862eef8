"""Backend "approximate": the pruned search of the cells around each point, and of no others."""

import logging

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.brute_force import brute_force
from lightning_diffal.graph.knn.candidates import EXTRA_CANDIDATES, Candidates
from lightning_diffal.graph.knn.projection import choose_basis
from lightning_diffal.graph.knn.pruned_search import pruned_search, search_nearby_cells
from lightning_diffal.graph.knn.refine import refine
from lightning_diffal.graph.knn.voronoi_cells import VoronoiCells, build_cells, positions_of_rank

log = logging.getLogger(__name__)

MIN_RECALL = 0.97
# Rows drawn at random, whose neighbors are also searched among all points.
SAMPLE = 256
# Each point is compared with the cells nearest to it that hold about this many points, at first.
POINTS_SEARCHED = 1536
# The initial search, which bounds the distance of the last neighbor, is among so many.
INITIAL_POINTS = 256
# As in `search_torch`; what is left of a projection may cost as much as this.
PROJECT_ABOVE, MAX_COST = 160, 0.14


def search_approximate(
    points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks = SINGLE_PROCESS
) -> Candidates:
    """Candidates for the rows that this rank searches, and the recall measured.

    Where less than MIN_RECALL of the neighbors of a random sample are found, more cells are searched. All random
    choices have a fixed seed, and no sum depends on the number of threads: the same points have the same graph.

    Cost: O(n^1.5 d) for the cells and about POINTS_SEARCHED distances for each row.
    """
    basis = choose_basis(points, count, MAX_COST, ranks) if points.shape[1] > PROJECT_ABOVE else None
    cells = build_cells(points, ranks, basis)
    query = positions_of_rank(cells, ranks)
    generator = torch.Generator(device=points.device).manual_seed(0)
    drawn = torch.randperm(len(points), generator=generator, device=points.device)[:SAMPLE].sort().values
    sample = drawn[torch.isin(drawn, query)]
    rows = cells.index[sample]
    exact = nearest(points, Candidates(rows, brute_force(points, rows, count, iter), cells.norm[sample]))
    probe = max(2, round(POINTS_SEARCHED / len(points) * len(cells.center)))
    while True:
        found = nearest(points, search_cells(cells, sample, count, iter, probe))
        recall = ranks.sum(int((exact[:, :, None] == found[:, None]).sum())) / (len(drawn) * exact.shape[1])
        if recall >= MIN_RECALL or probe >= len(cells.center):
            break
        probe = min(2 * probe, len(cells.center))
        log.info("build_graph: recall %.3f is below %.2f: %d cells are searched for a point", recall, MIN_RECALL, probe)
    log.info("build_graph: approximate neighbors, recall %.4f on %d points drawn at random", recall, len(drawn))
    return search_cells(cells, query, count, progress, probe)._replace(recall=recall)


def search_cells(
    cells: VoronoiCells, query: Int[Tensor, " r"], count: int, progress: Progress, probe: int
) -> Candidates:
    """The nearest of the points in the `probe` cells nearest to each."""
    initial = search_nearby_cells(cells, query, count, INITIAL_POINTS)
    return Candidates(cells.index[query], *pruned_search(cells, initial, progress, probe))


def nearest(points: Float[Tensor, "n d"], candidates: Candidates) -> Int[Tensor, "r k"]:
    """As many as the graph will have neighbors."""
    neighbors = max(1, candidates.neighbors.shape[1] - 1 - EXTRA_CANDIDATES)
    return refine(points, candidates, neighbors, candidates.spread)[0]
