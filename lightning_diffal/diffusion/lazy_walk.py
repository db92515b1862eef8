"""A lazy random walk on the graph: who is reached from where in a given, possibly fractional, number of steps."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.sparse_rows import Entries
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.ragged import run_starts
from lightning_diffal.numerics.sparse import csr

# Edges whose walks are bounded at a time.
BLOCK_EDGES = 2**20


class LazyWalk:
    """S = P^t of a walk that stays with a probability of about a third: P = D⁻¹(W + ½ d̄ I).

    W are symmetric weights, d̄ is their mean row sum and D makes the rows of P sum to 1. With t = h + f, h whole and
    0 ≤ f < 1, S is the mixture (1 - f) Pʰ + f Pʰ⁺¹. No power is stored: its products and single columns are computed
    from P. All of it takes a third of the time where neighbors are near in memory.

    Memory: 24 bytes an edge of W and 60 a node.
    """

    def __init__(self, graph: NeighborGraph, steps: float) -> None:
        n, num_edges = graph.num_nodes, len(graph.col)
        degree = graph.wide_influence
        stay = degree.mean() / 2
        self.norm = degree + stay
        # Sparse libraries use 32-bit indices where they can, and would convert others for every product.
        dtype = torch.int32 if num_edges + 2 * n < 2**31 else torch.int64
        rows = torch.arange(n, device=graph.device)
        # Each row begins with its self-edge. Behind all rows self-edges come once more, as rows of their own: those of
        # walks that stay.
        place = torch.arange(num_edges, device=graph.device) + graph.source + 1
        self_edge = graph.crow[:-1] + rows
        col = torch.empty(num_edges + 2 * n, dtype=dtype, device=graph.device)
        # Pᵀ = (W + ½ d̄ I) D⁻¹; then P x = D⁻¹ Pᵀ (D x).
        step = torch.empty_like(col, dtype=wide_dtype(graph.device))
        col[place], step[place] = graph.col.to(dtype), graph.weight.to(step.dtype) / self.norm[graph.col]
        for stays in (self_edge, slice(num_edges + n, None)):
            col[stays], step[stays] = rows.to(dtype), stay / self.norm
        length = torch.cat([graph.degree + 1, torch.ones_like(rows)])
        whole = math.floor(steps)
        self.hops = [Entries(length, col, step)] * whole
        if steps > whole or whole == 0:
            last = step * (steps - whole)
            last[self_edge] += 1 - (steps - whole)
            last[num_edges + n :] += 1 - (steps - whole)
            self.hops.append(Entries(length, col, last))

    @property
    def num_nodes(self) -> int:
        return len(self.norm)

    @property
    def num_edges(self) -> int:
        """Self-edges included."""
        return len(self.hops[0].col) - self.num_nodes

    def matrix(self, hop: Entries) -> Tensor:
        crow = self.hops[0].crow[: self.num_nodes + 1]
        return csr(crow, hop.col[: self.num_edges], hop.value[: self.num_edges], self.num_nodes)

    def times(self, values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """S x. Cost: O(t · edges)."""
        return self.transposed_times(values * self.norm) / self.norm

    def transposed_times(self, values: Float[Tensor, " n *v"]) -> Float[Tensor, " n *v"]:
        """Sᵀ x, of one vector or several. Cost: O(t · edges)."""
        for hop in self.hops:
            values = self.matrix(hop) @ values
        return values

    def columns(self, nodes: Int[Tensor, " b"], stay_below: float = 0.0) -> tuple[Entries, Bool[Tensor, " b"]]:
        """Columns of S, and whether each is complete. After the first hop, walks stay where S is less than that.

        What they would bring to other nodes is left out: no entry is too large.

        Cost: for each hop the edges of all nodes it starts from, and O(nodes) on the CPU; with `stay_below` these are
        at most 1 / `stay_below` a column, about, however large the graph.
        """
        complete = torch.ones_like(nodes, dtype=torch.bool)
        column = self.hops[0][nodes]
        for hop in self.hops[1:]:
            col = column.col
            if stay_below:
                moves = column.value >= stay_below
                complete &= column.all(moves)
                col = torch.where(moves, col, col + self.num_nodes)
            column = Entries(column.length, col, column.value).times(hop, self.num_nodes)
        return column, complete

    def edge_bounds(self, nodes: Int[Tensor, " b"]) -> Iterator[tuple[Int[Tensor, " c"], Entries]]:
        """The columns of S at the neighbors of these nodes, bounded from below, some nodes at a time.

        Counted are walks from i to j that use the edge once and stay at i or j otherwise; for i = j also those that
        come back at once. With t ≤ 1 the bound is S_ij itself.

        Cost: O(t · edges).
        """
        stays = [hop.value[self.num_edges :] for hop in self.hops]
        for some in nodes.split(max(1, BLOCK_EDGES * self.num_nodes // self.num_edges)):
            near = self.hops[0][some]
            row, col, bound = torch.repeat_interleave(near.length), near.col, near.value
            stay = run_starts(near.length)  # where self-edges are among these
            # D⁻¹ on the other side: from the weight of a walk along an edge to that of one back.
            back = self.norm[col] / self.norm[some][row]
            for hop, stays_there in zip(self.hops[1:], stays[1:], strict=True):
                weight = near.value if hop is self.hops[0] else hop[some].value
                returns = near.sum(bound * weight * back)
                bound = stays_there[col] * bound + weight * bound[stay][row]
                bound[stay] = returns
            yield some, Entries(near.length, col, bound)
