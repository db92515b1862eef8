"""Exact nearest neighbors: choose a backend, let it find candidates, settle them."""

import logging
import math
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress, checks_its_arguments
from lightning_diffal.graph.cells import cut, first_look, search_cells
from lightning_diffal.graph.certify import certify, search_directly, surplus_copies
from lightning_diffal.graph.cluster import CUDA_MOST, ThinAnswerError, search_cluster
from lightning_diffal.graph.exact import search_torch
from lightning_diffal.graph.faiss import search_faiss
from lightning_diffal.graph.precision import full_float32, wide_dtype

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


@checks_its_arguments
def nearest_neighbors(
    points: Float[Tensor, "n d"], neighbors: int, backend: Backend, progress: Progress
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """The `neighbors` nearest of each point, nearest first, and their squared distances up to a common factor."""
    chosen = choose_backend(points, neighbors + 1 + SPARE, backend)
    try:
        return search_distinct(unit_scale(points), neighbors, chosen, progress)
    except ThinAnswerError as error:
        if backend != "auto":
            raise
        log.warning("%s It is used instead.", error)
        return search_distinct(unit_scale(points), neighbors, "torch", progress)


def search_distinct(
    scaled: Float[Tensor, "n d"], neighbors: int, backend: Backend, progress: Progress
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """The same, with copies of a point that nobody needs left out of the search."""
    surplus, first = surplus_copies(scaled, most=neighbors + 1)
    if not surplus.any():
        return search(scaled, neighbors, backend, progress)
    # A surplus copy has k copies of lower index, all at distance 0: the neighbors of the first, and the first itself.
    kept, extra = (~surplus).nonzero()[:, 0], surplus.nonzero()[:, 0]
    nearest = torch.empty(len(scaled), neighbors, dtype=torch.long, device=scaled.device)
    distance = torch.zeros(len(scaled), neighbors, dtype=wide_dtype(scaled.device), device=scaled.device)
    of_kept, distance[kept] = search(scaled[kept], neighbors, backend, progress)
    nearest[kept] = kept[of_kept]
    nearest[extra] = torch.cat([first[extra, None], nearest[first[extra]][:, :-1]], dim=1)
    return nearest, distance


def search(
    points: Float[Tensor, "n d"], neighbors: int, backend: Backend, progress: Progress
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Up to three searches, each for the rows the one before was not certain of."""
    count = min(len(points), neighbors + 1 + SPARE)
    centered = (points - points.mean(dim=0)).float()
    norm = centered.norm(dim=1)
    rows = torch.arange(len(points), device=points.device)
    with full_float32(points.device):
        if backend == "cluster":
            candidates, spread = search_cluster(centered, count)
        elif backend == "faiss":
            candidates, spread = search_faiss(centered, count, progress)
        else:
            candidates, spread = search_torch(centered, count, progress)
        nearest, distance, certain = certify(points, rows, candidates, neighbors, spread=spread, norm=norm)
        rows = (~certain).nonzero()[:, 0]
        if len(rows) > FEW:
            # Crowded where float32 is coarse, or many points equally far: finer arithmetic, and more candidates.
            cells = cut(centered)
            candidates, spread = search_cells(cells, first_look(cells, min(len(points), 4 * count)), rows, iter)
            nearest[rows], distance[rows], certain = certify(
                points, rows, candidates, neighbors, spread=spread, norm=norm[rows]
            )
            rows = rows[~certain]
    nearest[rows], distance[rows] = search_directly(points, rows, neighbors)
    log.debug("build_graph: %d of %d points searched by all differences", len(rows), len(points))
    return nearest, distance


def unit_scale(points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The points divided by a power of two, so that no square overflows; weights do not depend on the unit."""
    exponent = math.frexp(float(points.abs().amax()))[1]
    # In two factors, since 2⁻ᵉ itself may be too large or too small for the type.
    return points * 2.0 ** (-exponent // 2) * 2.0 ** (-exponent - -exponent // 2)


@checks_its_arguments
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


@checks_its_arguments
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
