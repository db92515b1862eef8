"""Exact nearest neighbors: choose a backend, let it find candidates, settle them."""

import logging
import math
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress, skip_type_check
from lightning_diffal.distributed import Ranks
from lightning_diffal.graph.knn.brute_force import search_torch
from lightning_diffal.graph.knn.cell_search import first_look, search_cells
from lightning_diffal.graph.knn.cells import cut, positions_of
from lightning_diffal.graph.knn.cluster import CUDA_MOST, ThinAnswerError, search_cluster
from lightning_diffal.graph.knn.faiss import search_faiss
from lightning_diffal.graph.knn.refine import certify, search_directly, surplus_copies
from lightning_diffal.graph.reading import Reading
from lightning_diffal.graph.row_partition import Share
from lightning_diffal.numerics.precision import full_float32, magnitude, times_two_to

Backend: TypeAlias = Literal["auto", "torch", "cluster", "faiss"]

log = logging.getLogger(__name__)

# Candidates beyond the neighbors and the point itself. More make fewer rows doubtful, and every row dearer.
SPARE = 3
# So many doubtful rows are sooner searched one by one than with cells, which look at all rows first.
FEW = 200
# Where torch-cluster's kd-tree is the fastest on the CPU (benchmarks/bench_graph_backends.py).
KD_TREE_UP_TO = 6
EXTRAS = {"cluster": "torch_cluster", "faiss": "faiss"}


def default_neighbors(num_nodes: int) -> int:
    """K = ⌈2 ln n⌉: a random graph of this degree is connected with high probability. At most n - 1, at least 1."""
    return max(1, min(math.ceil(2 * math.log(max(num_nodes, 1))), num_nodes - 1))


@skip_type_check
def nearest_neighbors(
    points: Float[Tensor, "n d"], neighbors: int, backend: Backend, progress: Progress, share: Share
) -> tuple[Int[Tensor, "own k"], Float[Tensor, "own k"]]:
    """The `neighbors` nearest of each point of this rank, by index, and their squared distances up to a factor."""
    chosen = choose_backend(points, neighbors + 1 + SPARE, backend)
    if backend == "auto" and share.ranks.sum(chosen == "torch"):
        chosen = "torch"  # where one rank lacks an extra, all do without
    # Weights do not depend on the unit, and no square overflows.
    scaled = times_two_to(-magnitude(points), points)
    surplus, first = surplus_copies(scaled, most=neighbors + 1)
    if not surplus.any():
        return at_home(share, *search(scaled, neighbors, chosen, backend == "auto", progress, share.ranks))
    kept = (~surplus).nonzero()[:, 0]
    rows, nearest, distance = search(scaled[kept], neighbors, chosen, backend == "auto", progress, share.ranks)
    nearest, distance = at_home(share, kept[rows], kept[nearest], distance)
    # A surplus copy has k copies of lower index, all at distance 0: the neighbors of the first, and the first itself.
    extra = share.of(surplus).nonzero()[:, 0]
    original, which = share.of(first)[extra].unique(return_inverse=True)
    others = Reading(share, original)(nearest)[which]
    nearest[extra] = torch.cat([original[which, None], others[:, :-1]], dim=1)  # the first has the lowest index
    distance[extra] = 0
    return nearest, distance


def search(
    points: Float[Tensor, "n d"], neighbors: int, backend: Backend, replace: bool, progress: Progress, ranks: Ranks
) -> tuple[Int[Tensor, " r"], Int[Tensor, "r k"], Float[Tensor, "r k"]]:
    """The points this rank searches from, their neighbors and distances.

    Up to three searches, each for the rows the one before was not certain of.
    """
    count = min(len(points), neighbors + 1 + SPARE)
    centered = (points - points.mean(dim=0)).float()
    with full_float32(points.device):
        rows, candidates, spread = candidates_by(backend, replace, centered, count, progress, ranks)
        norm = centered[rows].norm(dim=1)
        nearest, distance, certain = certify(points, rows, candidates, neighbors, spread=spread, norm=norm)
        left = (~certain).nonzero()[:, 0]
        if len(left) > FEW:
            # Crowded where float32 is coarse, or many points equally far: finer arithmetic, and more candidates.
            cells = cut(centered)
            position, turn = positions_of(cells, rows[left])
            left = left[turn]
            candidates, spread = search_cells(cells, first_look(cells, position, min(len(points), 4 * count)), iter)
            nearest[left], distance[left], certain = certify(
                points, rows[left], candidates, neighbors, spread=spread, norm=norm[left]
            )
            left = left[~certain]
    nearest[left], distance[left] = search_directly(points, rows[left], neighbors)
    log.debug("build_graph: %d of %d points searched by all differences", len(left), len(rows))
    return rows, nearest, distance


def candidates_by(
    backend: Backend, replace: bool, points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks
) -> tuple[Int[Tensor, " r"], Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The points this rank searches from, what a backend finds for them, and what its error grows with."""
    rows = Share(ranks, len(points)).indices(points.device)
    if backend == "faiss":
        return rows, *search_faiss(points, rows, count, progress)
    if backend == "cluster":
        thin: ThinAnswerError | None = None
        try:
            found = search_cluster(points, rows, count)
        except ThinAnswerError as error:
            thin = error
        if not ranks.sum(thin is not None):
            return rows, *found
        thin = thin or ThinAnswerError(
            'build_graph(backend="cluster"): torch-cluster returned fewer edges than it was asked for on another rank. '
            'backend="torch" gives the same graph without it.'
        )
        if not replace:
            raise thin
        log.warning("%s It is used instead.", thin)
    return search_torch(points, count, progress, ranks)


def at_home(
    share: Share, rows: Int[Tensor, " r"], nearest: Int[Tensor, "r k"], distance: Float[Tensor, "r k"]
) -> tuple[Int[Tensor, "own k"], Float[Tensor, "own k"]]:
    """Each row on the rank that owns it, in order."""
    neighbors = nearest.shape[1]
    here = nearest.new_empty(len(share), neighbors), distance.new_empty(len(share), neighbors)
    if share.alone:
        here[0][rows], here[1][rows] = nearest, distance
        return here
    bits = torch.cat([nearest, distance.double().view(torch.long)], dim=1)
    for places, came in share.sent_home(rows, bits):
        here[0][places] = came[:, :neighbors]
        here[1][places] = came[:, neighbors:].contiguous().view(torch.double).to(distance.dtype)
    return here


@skip_type_check
def check_backend(caller: str, backend: str) -> None:
    """Refuse a backend that does not exist or is not installed."""
    if backend not in ("auto", "torch", *EXTRAS):
        raise ValueError(f'{caller}(backend={backend!r}): "auto", "torch", "cluster" or "faiss" is needed.')
    if backend in EXTRAS and find_spec(EXTRAS[backend]) is None:
        raise ModuleNotFoundError(
            f"{caller}(backend={backend!r}): {EXTRAS[backend]} is not installed. "
            f"`pip install lightning-diffal[{backend}]` installs it"
            + (", with --no-build-isolation and after torch: see the README." if backend == "cluster" else ".")
            + ' backend="torch" gives the same graph without it.'
        )


@skip_type_check
def choose_backend(points: Float[Tensor, "n d"], count: int, backend: Backend) -> Backend:
    """The backend asked for, if it can serve, or the fastest by measurement (benchmarks/bench_graph_backends.py)."""
    on_cuda = points.device.type == "cuda"
    check_backend("build_graph", backend)
    if backend == "cluster" and on_cuda and count > CUDA_MOST:
        raise ValueError(
            f'build_graph(neighbors={count - 1 - SPARE}, backend="cluster"): torch-cluster finds at most '
            f'{CUDA_MOST - 1 - SPARE} neighbors on CUDA. backend="torch" has no such limit.'
        )
    if backend != "auto":
        return backend
    chosen: Backend = "torch"
    reason = "the fastest by measurement"
    if on_cuda and count <= CUDA_MOST and cluster_works():
        chosen, reason = "cluster", "its kernel needs no memory for distances"
    elif points.device.type == "cpu" and points.shape[1] <= KD_TREE_UP_TO and cluster_works():
        chosen, reason = "cluster", f"a kd-tree is the fastest up to {KD_TREE_UP_TO} dimensions"
    log.debug("build_graph: backend %r for n=%d, d=%d on %s: %s", chosen, *points.shape, points.device, reason)
    return chosen


def cluster_works() -> bool:
    if find_spec(EXTRAS["cluster"]) is None:
        return False
    try:
        import torch_cluster  # noqa: F401, PLC0415, an extra
    except (ImportError, OSError) as error:
        # Most likely pip's cached wheel for another torch.
        log.debug("build_graph: torch-cluster is installed and cannot be imported: %s", error)
        return False
    return True
