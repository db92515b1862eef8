"""Nearest neighbors: a backend finds candidates, `refine` makes them exact, uncertain rows are searched again."""

import logging
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress, skip_type_check
from lightning_diffal.distributed import Ranks
from lightning_diffal.graph.knn.approximate_search import search_all
from lightning_diffal.graph.knn.candidates import EXTRA_CANDIDATES, Candidates, IncompleteResultError
from lightning_diffal.graph.knn.pruned_search import pruned_search, search_nearby_cells
from lightning_diffal.graph.knn.refine import refine, search_by_differences, surplus_copies
from lightning_diffal.graph.knn.registry import CHOSEN, TORCH, Backend, KnnBackend, resolve_backend
from lightning_diffal.graph.knn.voronoi_cells import build_cells, positions_of_rows
from lightning_diffal.numerics.precision import full_float32, ldexp, max_exponent
from lightning_diffal.numerics.threads import single_thread

log = logging.getLogger(__name__)

# Up to this many uncertain rows are compared with the whole pool; for more, building cells first is faster.
MAX_ROWS_BY_PRODUCTS = 200


def default_neighbors(num_nodes: int) -> int:
    """K = ⌈2 ln n⌉: a random graph of this degree is connected with high probability. At most n - 1, at least 1."""
    return max(1, min(math.ceil(2 * math.log(max(num_nodes, 1))), num_nodes - 1))


@skip_type_check
def nearest_neighbors(
    points: Float[Tensor, "n d"], neighbors: int, backend: Backend, progress: Progress, ranks: Ranks
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"], float | None]:
    """The `neighbors` nearest of each point, ascending by index, and their squared distances up to a common factor.

    The third is the recall, None where the search is exact. Each rank searches its share of the rows; the results are
    gathered.
    """
    chosen = resolve_backend(backend, neighbors, points.device, *points.shape)
    if backend in CHOSEN and ranks.sum(chosen is TORCH):
        chosen = TORCH  # where one rank lacks an extra, no rank uses it
    # Weights do not depend on the unit, and no square overflows.
    scaled = ldexp(points, -max_exponent(points))
    surplus, first = surplus_copies(scaled, max_copies=neighbors + 1)
    kept = (~surplus).nonzero()[:, 0]
    searched = scaled if len(kept) == len(scaled) else scaled[kept]
    *found, recall = search(searched, neighbors, chosen, backend in CHOSEN, progress, ranks)
    rows, nearest_kept, distance_kept = (ranks.all_gather_cat(part) for part in found)
    nearest = nearest_kept.new_empty(len(points), neighbors)
    distance = distance_kept.new_zeros(len(points), neighbors)
    nearest[kept[rows]], distance[kept[rows]] = kept[nearest_kept], distance_kept
    # A surplus copy has k copies of lower index, all at distance 0: the first, which has the lowest, and its neighbors.
    original = first[surplus]
    nearest[surplus] = torch.cat([original[:, None], nearest[original][:, :-1]], dim=1)
    return nearest, distance, recall


def search(
    points: Float[Tensor, "n d"],
    neighbors: int,
    backend: KnnBackend,
    may_replace: bool,
    progress: Progress,
    ranks: Ranks,
) -> tuple[Int[Tensor, " r"], Int[Tensor, "r k"], Float[Tensor, "r k"], float | None]:
    """The rows that this rank searches, their neighbors, distances and recall.

    Up to three searches, each for the rows the one before was not certain of.
    """
    # Extra candidates prove that no neighbor was left out, which an approximate search does not claim.
    count = min(len(points), neighbors + 1 + (EXTRA_CANDIDATES if backend.exact else 0))
    with single_thread():
        mean = points.mean(dim=0)
    centered = (points - mean).float()
    with full_float32(points.device):
        candidates = find_candidates(backend, may_replace, centered, count, progress, ranks)
        recall = candidates.recall
        rows, norm = candidates.rows, centered.norm(dim=1)[candidates.rows]
        nearest, distance, certain = refine(points, candidates, neighbors, norm)
        if recall is not None:
            return rows, nearest, distance, recall
        uncertain = (~certain).nonzero()[:, 0]
        if len(uncertain):
            more = min(len(points), 4 * count)
            if len(uncertain) > MAX_ROWS_BY_PRODUCTS:
                # Points too dense for float32, or many equally far: finer arithmetic, and more candidates.
                cells = build_cells(centered)
                position, order = positions_of_rows(cells, rows[uncertain])
                uncertain = uncertain[order]
                initial = search_nearby_cells(cells, position, more)
                candidates = Candidates(rows[uncertain], *pruned_search(cells, initial, iter))
            else:
                found = search_all(centered, rows[uncertain], more)
                candidates = Candidates(rows[uncertain], found, norm[uncertain])
            nearest[uncertain], distance[uncertain], certain = refine(points, candidates, neighbors, norm[uncertain])
            uncertain = uncertain[~certain]
        kth = distance[uncertain].amax(dim=1)
        exact = search_by_differences(points, centered, rows[uncertain], kth, neighbors)
        nearest[uncertain], distance[uncertain] = exact
    log.debug("build_graph: %d of %d points searched by all differences", len(uncertain), len(rows))
    return rows, nearest, distance, None


def find_candidates(
    backend: KnnBackend, may_replace: bool, points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks
) -> Candidates:
    """The candidates of a backend. If it fails on one rank, all ranks use "torch" instead, or all raise."""
    failure: IncompleteResultError | None = None
    try:
        candidates = backend.search(points, count, progress, ranks)
    except IncompleteResultError as error:
        failure = error
    if not ranks.sum(failure is not None):
        return candidates
    failure = failure or IncompleteResultError(
        f'build_graph(backend="{backend.name}"): {backend.module} returned fewer edges than it was asked for on '
        'another rank. backend="torch" gives the same graph without it.'
    )
    if not may_replace:
        raise failure
    log.warning("%s It is used instead.", failure)
    return TORCH.search(points, count, progress, ranks)
