"""A lazy random walk on the graph: who is reached from where in a given, possibly fractional, number of steps."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.sparse_rows import Entries
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.graph.reorder import locality_order
from lightning_diffal.numerics.distinct import distinct
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.ragged import run_positions, run_starts
from lightning_diffal.numerics.sparse import csr

# Edges whose walks are bounded at a time.
BLOCK_EDGES = 2**20


class LazyWalk:
    """S = P^t of a walk that stays with a probability of about a third: P = D⁻¹(W + ½ d̄ I).

    W are symmetric weights, d̄ is their mean row sum and D makes the rows of P sum to 1. With t = h + f, h whole and
    0 ≤ f < 1, S is the mixture (1 - f) Pʰ + f Pʰ⁺¹. No power is stored: its products and single columns are computed
    from P.

    Memory: 24 bytes an edge of W and 48 a node.
    """

    def __init__(self, graph: NeighborGraph, steps: float) -> None:
        n = graph.num_nodes
        degree = graph.wide_influence
        stay = degree.mean() / 2
        self.norm = degree + stay
        # The sparse library uses 32-bit indices where it can, and would convert them for every product.
        dtype = torch.int32 if len(graph.col) + n < 2**31 else torch.int64
        rows = torch.arange(n, device=graph.device)
        # Self-edges go between lower and higher neighbors: columns ascend.
        place = torch.arange(len(graph.col), device=graph.device) + graph.source + (graph.col > graph.source)
        self.crow = (graph.crow + torch.arange(n + 1, device=graph.device)).to(dtype)
        is_self = torch.ones(len(place) + n, dtype=torch.bool, device=graph.device)
        is_self[place] = False
        self.self_edge = is_self.nonzero()[:, 0]
        self.col = torch.empty_like(is_self, dtype=dtype)
        self.col[place], self.col[self.self_edge] = graph.col.to(dtype), rows.to(dtype)
        # Pᵀ = (W + ½ d̄ I) D⁻¹; then P x = D⁻¹ Pᵀ (D x).
        step = torch.empty_like(is_self, dtype=wide_dtype(graph.device))
        step[place] = graph.weight.to(step.dtype) / self.norm[graph.col]
        step[self.self_edge] = stay / self.norm
        self.place = torch.empty_like(rows)  # of each node in an order in which neighbors are near
        self.place[locality_order(graph)[0]] = rows
        whole = math.floor(steps)
        self.hops = [step] * whole
        if steps > whole:
            last = step * (steps - whole)
            last[self.self_edge] += 1 - (steps - whole)
            self.hops.append(last)

    @property
    def num_nodes(self) -> int:
        return len(self.norm)

    def matrix(self, weight: Float[Tensor, " e"]) -> Tensor:
        return csr(self.crow, self.col, weight, self.num_nodes)

    def times(self, values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """S x. Cost: O(t · edges)."""
        return self.transposed_times(values * self.norm) / self.norm

    def transposed_times(self, values: Float[Tensor, " n *v"]) -> Float[Tensor, " n *v"]:
        """Sᵀ x, of one vector or several. Cost: O(t · edges)."""
        for weight in self.hops:
            values = self.matrix(weight) @ values
        return values

    def columns(self, nodes: Int[Tensor, " b"], stay_below: float = 0.0) -> tuple[Entries, Bool[Tensor, " b"]]:
        """Columns of S, and whether each is complete. After the first hop, walks stay where S is less than that.

        What they would bring to other nodes is left out: no entry is too large.

        Cost: for each hop the edges of all nodes it starts from; with `stay_below` these are at most 1 / `stay_below` a
        column, about, however large the graph.
        """
        complete = torch.ones_like(nodes, dtype=torch.bool)
        column = Entries(torch.ones_like(nodes), nodes, torch.ones_like(nodes, dtype=self.norm.dtype))
        for hop, weight in enumerate(self.hops):
            moves = column.value >= (stay_below if hop else 0.0)
            complete &= column.all(moves)
            column = self.step(column, weight, moves)
        return column, complete

    def step(self, columns: Entries, weight: Float[Tensor, " e"], moves: Bool[Tensor, " v"]) -> Entries:
        """One hop of walks that are at `columns`; those that do not move keep what stays of them."""
        # Only the rows of the matrix that are needed, numbered from 0: whole ones first, then the self-edges alone.
        whole, number = distinct(columns.col[moves], self.num_nodes)
        single, place = distinct(columns.col[~moves], self.num_nodes)
        start = self.crow[whole].long()
        length = self.crow[whole + 1] - start
        edges = torch.cat([run_positions(start, length), self.self_edge[single]])
        rows = Entries(torch.cat([length, torch.ones_like(single)]), self.col[edges], weight[edges])
        row = torch.empty_like(columns.col, dtype=torch.long)
        row[moves], row[~moves] = number, place + len(whole)
        return Entries(columns.length, row, columns.value).times(rows, self.num_nodes)

    def edge_bounds(self, nodes: Int[Tensor, " b"]) -> Iterator[tuple[Int[Tensor, " c"], Entries]]:
        """The columns of S at the neighbors of these nodes, bounded from below, some nodes at a time.

        Counted are walks from i to j that use the edge once and stay at i or j otherwise; for i = j also those that
        come back at once. With t ≤ 1 the bound is S_ij itself.

        Cost: O(t · edges).
        """
        stays = [weight[self.self_edge] for weight in self.hops]
        per_node = max(1, len(self.col) // self.num_nodes)
        for some in nodes.split(max(1, BLOCK_EDGES // per_node)):
            start = self.crow[some].long()
            length = self.crow[some + 1] - start
            edges = run_positions(start, length)
            row, col = torch.repeat_interleave(length), self.col[edges]
            stay = self.self_edge[some] - start + run_starts(length)  # where self-edges are among these
            # D⁻¹ on the other side: from the weight of a walk along an edge to that of one back.
            back = self.norm[col] / self.norm[some][row]
            bound = self.hops[0][edges]
            for hop, stays_there in zip(self.hops[1:], stays[1:], strict=True):
                weight = hop[edges]
                returns = torch.segment_reduce(bound * weight * back, "sum", lengths=length)
                bound = stays_there[col] * bound + weight * bound[stay][row]
                bound[stay] = returns
            yield some, Entries(length, col, bound)
