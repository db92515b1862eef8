"""Backend "approximate": the pruned search of the cells around each point, and of no others.

In many dimensions the cells are searched in the leading principal directions, where those hold nearly all neighbors.
"""

import logging

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.candidates import EXTRA_CANDIDATES, Candidates
from lightning_diffal.graph.knn.pruned_search import pruned_search, search_nearby_cells
from lightning_diffal.graph.knn.refine import refine
from lightning_diffal.graph.knn.torch_search import search_torch
from lightning_diffal.graph.knn.voronoi_cells import VoronoiCells, build_cells, positions_of_rank, positions_of_rows
from lightning_diffal.numerics.contraction import contract, leading_directions
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.threads import run_parallel, single_thread
from lightning_diffal.numerics.topk import pad_to_groups, topk_grouped

log = logging.getLogger(__name__)

MIN_RECALL = 0.97
# Rows drawn at random, whose neighbors are also searched among all points.
SAMPLE, SAMPLE_SEED = 256, 1
# Each point is compared with the cells nearest to it that hold about this many points, at first.
POINTS_SEARCHED = 1280
# The initial search, which bounds the distance of the last neighbor, is among so many.
INITIAL_POINTS = 256
# In more dimensions, the leading directions of so many points are tried; they must lose hardly any neighbor.
PROJECT_ABOVE, DIRECTIONS, POINTS_PROJECTED = 160, 127, 2048
MIN_PROJECTED_RECALL = 0.99
# In pools from this size on, the exact search is as fast as that of a larger fraction of the cells.
EXACT_FROM, EXACT_ABOVE = 12_000, 0.25
# Points compared with the sample at a time.
COMPARED = 4096


def search_approximate(
    points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks = SINGLE_PROCESS
) -> Candidates:
    """Candidates for the rows that this rank searches, and the recall measured.

    Where less than MIN_RECALL of the neighbors of a random sample are found, more cells are searched, in pools without
    structure all points. All random choices have a fixed seed, and no sum depends on the number of threads: the same
    points have the same graph.

    Cost: O(n^1.5 d) for the cells and about POINTS_SEARCHED distances for each row, d the dimensions searched in.
    """
    # Not the seed of the cells: the points their centers start from have more neighbors found than others.
    generator = torch.Generator(device=points.device).manual_seed(SAMPLE_SEED)
    drawn = torch.randperm(len(points), generator=generator, device=points.device)
    sample, own = drawn[:SAMPLE].sort().values, ranks.own_rows(len(points))
    rows = sample[(sample >= own.start) & (sample < own.stop)]
    # A few more candidates than neighbors: points may be equally far, and fewer directions change the order.
    wider = min(len(points), count + max(EXTRA_CANDIDATES, count // 4))
    true = nearest(points, rows, search_all(points, rows, wider), count - 1)

    def recall_of(found: Int[Tensor, "s m"]) -> float:
        hits = (true[:, :, None] == nearest(points, rows, found, count - 1)[:, None]).sum()
        return ranks.sum(int(hits)) / (len(sample) * (count - 1))

    searched = points
    if points.shape[1] > PROJECT_ABOVE and wide_dtype(points.device) == torch.float64:
        with single_thread():
            # Of other points than the sample, where there are enough, for the same reason.
            basis = leading_directions(points[drawn[-POINTS_PROJECTED:]], DIRECTIONS, generator)
        projected = contract(points, ranks.broadcast(basis).float())
        if recall_of(search_all(projected, rows, wider)) >= MIN_PROJECTED_RECALL:
            searched = projected
    cells = build_cells(searched, ranks)
    position, order = positions_of_rows(cells, rows)
    true, rows = true[order], rows[order]
    probe = max(2, round(POINTS_SEARCHED / len(points) * len(cells.center)))
    while True:
        recall = recall_of(search_cells(cells, position, wider, iter, probe).neighbors)
        if recall >= MIN_RECALL or probe >= len(cells.center):
            break
        probe = min(2 * probe, len(cells.center))
        if len(points) >= EXACT_FROM and probe > EXACT_ABOVE * len(cells.center):
            log.info("build_graph: recall %.3f is below %.2f: the exact search is faster", recall, MIN_RECALL)
            return search_torch(points, count, progress, ranks)._replace(recall=1.0)
        log.info("build_graph: recall %.3f is below %.2f: %d cells are searched for a point", recall, MIN_RECALL, probe)
    log.info("build_graph: approximate neighbors, recall %.4f on %d points drawn at random", recall, len(sample))
    query = positions_of_rank(cells, ranks)
    return search_cells(cells, query, wider, progress, probe)._replace(recall=recall)


def search_cells(
    cells: VoronoiCells, query: Int[Tensor, " r"], count: int, progress: Progress, probe: int
) -> Candidates:
    """The nearest of the points in the `probe` cells nearest to each."""
    initial = search_nearby_cells(cells, query, count, INITIAL_POINTS)
    return Candidates(cells.index[query], *pruned_search(cells, initial, progress, probe))


def search_all(points: Float[Tensor, "n d"], rows: Int[Tensor, " s"], count: int) -> Int[Tensor, "s count"]:
    """The `count` nearest points of a few rows, themselves among them, in no order. Cost: s n distances."""
    parts = max(1, len(points) // max(COMPARED, count))
    width = -(-len(points) // parts)
    index = torch.empty(len(rows), parts, count, dtype=torch.long, device=points.device)
    value = points.new_empty(index.shape)

    def search(part: int) -> None:
        others, half_square = pad_to_groups(points[part * width : (part + 1) * width])
        half_distance = torch.addmm(half_square, points[rows], others.T, alpha=-1)
        column = topk_grouped(half_distance, count)
        index[:, part], value[:, part] = column + part * width, half_distance.gather(1, column)

    run_parallel(search, range(parts), points.device)
    best = value.flatten(1).topk(count, largest=False, sorted=False).indices
    return index.flatten(1).gather(1, best)


def nearest(
    points: Float[Tensor, "n d"], rows: Int[Tensor, " r"], candidates: Int[Tensor, "r m"], neighbors: int
) -> Int[Tensor, "r k"]:
    """The nearest of the candidates, by their true distances."""
    unused = torch.zeros_like(points[rows, 0])
    return refine(points, Candidates(rows, candidates, unused), neighbors, unused)[0]
