"""The weighted k-NN graph of a pool of embeddings."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import (
    Progress,
    check_count,
    check_finite,
    check_flag,
    check_floats,
    check_function,
    check_integers,
    finite_rows,
    skip_type_check,
)
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.nearest_neighbors import default_neighbors, nearest_neighbors
from lightning_diffal.graph.knn.registry import Backend
from lightning_diffal.numerics.precision import at_least_float32, ldexp_, max_exponent, wide_dtype
from lightning_diffal.numerics.ragged import run_positions
from lightning_diffal.numerics.sparse import csr


@skip_type_check
@dataclass(frozen=True, eq=False)
class NeighborGraph:
    """A weighted directed graph in compressed rows: the neighbors of node i are `col[crow[i]:crow[i + 1]]`.

    `weight` holds W_ij for each of them, positive. Built by `build_graph`, or by hand from any CSR matrix. `recall` is
    the fraction of the nearest neighbors found, as measured on a random sample; None if all were.
    """

    crow: Tensor  # (n + 1,)
    col: Tensor  # (e,)
    weight: Tensor  # (e,)
    recall: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_integers("NeighborGraph", "crow", self.crow)
        check_integers("NeighborGraph", "col", self.col)
        check_floats("NeighborGraph", "weight", self.weight)
        if not self.crow.device == self.col.device == self.weight.device:
            devices = f"crow is on {self.crow.device}, col on {self.col.device}, weight on {self.weight.device}"
            raise ValueError(f"NeighborGraph: one device is needed, {devices}.")
        if self.crow.ndim != 1 or len(self.crow) < 2 or self.col.shape != self.weight.shape or self.col.ndim != 1:
            shapes = f"crow {tuple(self.crow.shape)}, col {tuple(self.col.shape)}, weight {tuple(self.weight.shape)}"
            raise ValueError(f"NeighborGraph: crow (n + 1,), col (e,) and weight (e,) are needed, given were {shapes}.")
        # Sparse products do not check these.
        if int(self.crow[0]) != 0 or int(self.crow[-1]) != len(self.col) or bool((self.crow.diff() < 0).any()):
            raise ValueError(f"NeighborGraph: crow must rise from 0 to the number of edges, {len(self.col)}.")
        if len(self.col) and not 0 <= int(self.col.min()) <= int(self.col.max()) < self.num_nodes:
            raise ValueError(f"NeighborGraph: every col must be a node, in [0, {self.num_nodes}).")
        if not bool(((self.weight > 0) & self.weight.isfinite()).all()):
            raise ValueError("NeighborGraph: every weight must be a positive number, and finite.")

    @property
    def num_nodes(self) -> int:
        return len(self.crow) - 1

    @property
    def device(self) -> torch.device:
        return self.weight.device

    @cached_property
    def degree(self) -> Int[Tensor, " n"]:
        return self.crow.diff()

    @cached_property
    def source(self) -> Int[Tensor, " e"]:
        """The row each edge starts from."""
        return torch.repeat_interleave(self.degree)

    @cached_property
    def influence(self) -> Float[Tensor, " n"]:
        """Σ_j W_ij, the row sums of W: large where the neighbors of i are about equally far."""
        return self.wide_influence.to(self.weight.dtype)

    @cached_property
    def wide_influence(self) -> Float[Tensor, " n"]:
        wide = self.weight.to(wide_dtype(self.device))
        return torch.segment_reduce(wide, "sum", offsets=self.crow, initial=0)

    @cached_property
    def transition_weight(self) -> Float[Tensor, " e"]:
        """M_ij = W_ij / Σ_j W_ij for each edge: the probability of a step from i to j."""
        return self.weight.to(wide_dtype(self.device)) / self.wide_influence[self.source]

    @cached_property
    def transition(self) -> Tensor:
        """M = D⁻¹W as a sparse CSR tensor (n, n)."""
        return csr(self.crow, self.col, self.transition_weight, self.num_nodes)

    @cached_property
    def symmetric(self) -> "NeighborGraph":
        """The graph of W̄ = (W + Wᵀ)/2, which is its own symmetric graph. Memory: up to 40 bytes an edge."""
        return symmetrized(self)

    @cached_property
    def incoming(self) -> tuple[Int[Tensor, " n_plus_1"], Int[Tensor, " e"]]:
        """The reverse adjacency `crow, source`: the rows `source[crow[j]:crow[j + 1]]` have an edge to node j.

        Memory: 8 bytes an edge and 8 a node.
        """
        target, order = self.col.sort(stable=True)
        crow = torch.searchsorted(target, torch.arange(self.num_nodes + 1, device=self.device))
        return crow, self.source[order]

    def predecessors(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " s"]:
        """The rows with an edge to any of `nodes`, once for each such edge."""
        crow, source = self.incoming
        return source[run_positions(crow[nodes], crow[nodes + 1] - crow[nodes])]


@torch.no_grad()
@skip_type_check
def build_graph(
    embeddings: Float[Tensor, "n d"],
    neighbors: int | None,
    *,
    backend: Backend = "auto",
    symmetric: bool = False,
    progress: Progress = iter,
    ranks: Ranks = SINGLE_PROCESS,
) -> NeighborGraph:
    """Join every point to its nearest neighbors, with weights that fall with the distance.

    W_ij = exp(-ρ_ij / σ_i) for j in N(i), where ρ is the squared Euclidean distance and σ_i the largest ρ in N(i), so
    that weights lie between 1/e and 1. Where all neighbors coincide with i, σ_i = 0 and the weights are 1. A point is
    never its own neighbor. Of points equally far the one with the lower index is the nearer.

    The search is exact, but for backend="approximate" and very large pools, and all exact backends give the same graph:
    float32 finds candidates, and distances from differences in float64 decide. float16 and bfloat16 embeddings are
    searched in float32.

    Args:
        embeddings: Finite numbers on any device. The graph is made on the same device.
        neighbors: k, the out-edges of every node. None means K = ⌈2 ln n⌉, which keeps such graphs connected.
        backend: "torch" (any device), "cluster" (torch-cluster: kd-tree on the CPU, kernel on CUDA, k up to 96 there),
            "faiss" (exact, on the CPU), "approximate" (any device; finds at least 97% of the neighbors, the graph's
            `recall` says how many); "exact", the fastest exact one by measurement of what is installed; or "auto", the
            same, but "approximate" on the CPU where d > 160 and n² d ≥ 10¹⁴, from 442,000 points in 512 dimensions on.
        symmetric: Take (W + Wᵀ)/2. Rows then have different numbers of edges.
        progress: Wraps the loop over blocks of rows; `tqdm.tqdm` draws a bar.
        ranks: Processes that build the graph together, each given all embeddings. Each searches its share of the rows;
            then the neighbors are gathered and every rank returns the whole graph, equal bit by bit to that of a single
            process.

    Cost: at most n² distances, a tenth of that where the embedding has clusters. Memory: 20 bytes an edge for the
    graph; while it is built 60 (k + 5) + 20 d bytes a point and 300 MiB, however large n. Of W ranks each computes
    1 / W of the distances and receives 16 k + 16 bytes a point.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning, sections 4 and 5.
    """
    check_embeddings(embeddings)
    if neighbors is None:
        neighbors = default_neighbors(len(embeddings))
    check_neighbors("build_graph", neighbors, len(embeddings))
    check_flag("build_graph", "symmetric", symmetric)
    check_function("build_graph", "progress", progress)
    points = at_least_float32(embeddings.detach())
    if points.dtype != embeddings.dtype:
        # A copy of our own, scaled in place: the search would make another one. Weights do not depend on the unit.
        ldexp_(points, -max_exponent(points))
    check_same_on_all_ranks(points, neighbors, symmetric, ranks)
    nearest, distance, recall = nearest_neighbors(points, neighbors, backend, progress, ranks)
    weight = kernel(distance).to(points.dtype)
    crow = torch.arange(0, nearest.numel() + 1, neighbors, device=points.device)
    graph = NeighborGraph(crow, nearest.flatten(), weight.flatten(), recall=recall)
    return symmetrized(graph) if symmetric else graph


@skip_type_check
def check_embeddings(embeddings: Float[Tensor, "n d"]) -> None:
    check_floats("build_graph", "embeddings", embeddings)
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise ValueError(
            f"build_graph(embeddings=...): one row for each point, shape (n, d), is needed, "
            f"{tuple(embeddings.shape)} was given. flatten(1) makes rows of images or feature maps."
        )
    if len(embeddings) == 0:
        raise ValueError("build_graph(embeddings=...): the pool is empty, shape (0, d) was given.")
    check_finite("build_graph", "embeddings", finite_rows(embeddings))


def check_same_on_all_ranks(points: Float[Tensor, "n d"], neighbors: int, symmetric: bool, ranks: Ranks) -> None:
    """Refuse arguments that differ between ranks, on all of them."""
    if ranks.single:
        return
    # Integers wrap around and do not round: the sum of equal bits is equal in any order.
    bits = points.contiguous().view(torch.int32 if points.dtype == torch.float32 else torch.int64).sum()
    given = torch.tensor([*points.shape, neighbors, symmetric], device=points.device)
    by_rank = ranks.all_gather(torch.cat([given, bits[None]])).tolist()
    for rank, arguments in enumerate(by_rank):
        if arguments != by_rank[0]:
            differing, expected = (
                "({}, {}), neighbors={}, symmetric={}".format(*one) for one in (arguments, by_rank[0])
            )
            raise ValueError(
                f"build_graph(ranks=...): rank {rank} was given embeddings of shape {differing}, rank 0 {expected}. "
                "All ranks need the same arguments, and embeddings that are equal bit by bit."
            )


def kernel(distance: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """exp(-ρ/σ) with σ the largest ρ of the row; 1 where σ = 0."""
    scale = distance.amax(dim=1, keepdim=True)
    return torch.where(scale > 0, distance / scale, 0).neg().exp()


def symmetrized(graph: NeighborGraph) -> NeighborGraph:
    """(W + Wᵀ)/2."""
    n = graph.num_nodes
    both_ways = torch.cat([graph.source * n + graph.col, graph.col * n + graph.source])
    edge, position = both_ways.unique(return_inverse=True)
    # At most two terms are added for an edge, and a + b = b + a: the same sum in any order, on any device.
    weight = torch.zeros(len(edge), dtype=graph.weight.dtype, device=graph.device)
    weight.index_add_(0, position, graph.weight.repeat(2) / 2)
    crow = torch.searchsorted(edge, torch.arange(n + 1, device=graph.device) * n)
    return NeighborGraph(crow, edge % n, weight, recall=graph.recall)


@skip_type_check
def check_neighbors(caller: str, neighbors: int | None, num_points: int | None = None) -> None:
    """Refuse more neighbors than a pool of `num_points` has. None, the default number, always fits."""
    if neighbors is None:
        return
    check_count(caller, "neighbors", neighbors)
    if num_points is not None and neighbors >= num_points:
        raise ValueError(
            f"{caller}(neighbors={neighbors}): a pool of {num_points} points has at most {num_points - 1} neighbors "
            "each."
        )


@skip_type_check
def check_graph(caller: str, graph: object) -> None:
    """Refuse what is not a NeighborGraph, as a matrix."""
    if not isinstance(graph, NeighborGraph):
        raise ValueError(
            f"{caller}(graph=...): a NeighborGraph is needed, as of build_graph, {type(graph).__name__} was given."
        )
