"""A lazy random walk on the graph: who is reached from where in a given, possibly fractional, number of steps."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.sparse_rows import Entries
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.ragged import run_positions
from lightning_diffal.numerics.sparse import csr

# Edges whose walks are bounded at a time.
BLOCK_EDGES = 2**20


class LazyWalk:
    """S = P^t of a walk that stays with a probability of about a third: P = D⁻¹(W + ½ d̄ I).

    W are symmetric weights, d̄ is their mean row sum and D makes the rows of P sum to 1. With t = h + f, h whole and
    0 ≤ f < 1, S is the mixture (1 - f) Pʰ + f Pʰ⁺¹. No power is stored: its products and single columns are computed
    from P.

    Memory: 24 bytes an edge of W and 40 a node.
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

    def lengths(self, nodes: slice) -> Int[Tensor, " r"]:
        """The number of edges of each of these nodes, with that to itself."""
        return self.crow[nodes.start : nodes.stop + 1].diff().long()

    def times(self, values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """S x. Cost: O(t · edges)."""
        return self.transposed_times(values * self.norm) / self.norm

    def transposed_times(self, values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Sᵀ x. Cost: O(t · edges)."""
        for weight in self.hops:
            values = self.matrix(weight) @ values
        return values

    def columns(self, nodes: Int[Tensor, " b"], drop_below: float = 0.0) -> tuple[Entries, Bool[Tensor, " b"]]:
        """Columns of S, and whether each is complete. Walks go on from a node only where S is at least `drop_below`.

        Cost: for each hop the edges of all nodes it starts from; where something is dropped these are at most
        1 / `drop_below` a column, about, however large the graph.
        """
        complete = torch.ones_like(nodes, dtype=torch.bool)
        column = Entries(torch.ones_like(nodes), nodes, torch.ones_like(nodes, dtype=self.norm.dtype))
        for hop, weight in enumerate(self.hops):
            if hop:
                column = dropped(column, drop_below, complete)
            column = self.step(column, weight)
        return column, complete

    def step(self, columns: Entries, weight: Float[Tensor, " e"]) -> Entries:
        """One hop of walks that are at `columns`."""
        # Only the rows of the matrix that are needed, numbered from 0.
        number = torch.zeros_like(self.self_edge)
        number[columns.col] = 1
        needed = number.nonzero()[:, 0]
        number[needed] = torch.arange(len(needed), device=needed.device)
        length = self.crow[needed + 1].long() - self.crow[needed]
        edges = run_positions(self.crow[needed].long(), length)
        rows = Entries(length, self.col[edges], weight[edges])
        return Entries(columns.length, number[columns.col], columns.value).times(rows, self.num_nodes)

    def edge_bounds(self) -> Iterator[tuple[slice, slice, Float[Tensor, " e"]]]:
        """S_ij is at least this for each edge of P, for some nodes j at a time: those, their edges, and the bounds.

        Edge e leads from j to i = `col[e]`. Counted are walks that use the edge once and stay at i or j otherwise; for
        i = j also those that come back at once. With t ≤ 1 the bound is S_ij itself.

        Cost: O(t · edges).
        """
        stay = [weight[self.self_edge] for weight in self.hops]
        per_node = max(1, len(self.col) // self.num_nodes)
        for rows in torch.arange(self.num_nodes, device=self.col.device).split(max(1, BLOCK_EDGES // per_node)):
            nodes = slice(int(rows[0]), int(rows[-1]) + 1)
            edges = slice(int(self.crow[nodes.start]), int(self.crow[nodes.stop]))
            lengths = self.lengths(nodes)
            row, col, own = torch.repeat_interleave(lengths), self.col[edges], self.self_edge[nodes] - edges.start
            # D⁻¹ on the other side: from the weight of a walk along an edge to that of one back.
            back = self.norm[col] / self.norm[nodes][row]
            bound = self.hops[0][edges].clone()
            for weight, stay_there in zip(self.hops[1:], stay[1:], strict=True):
                returns = torch.segment_reduce(bound * weight[edges] * back, "sum", lengths=lengths)
                bound = stay_there[col] * bound + weight[edges] * bound[own][row]
                bound[own] = returns
            yield nodes, edges, bound


def dropped(columns: Entries, below: float, complete: Bool[Tensor, " b"]) -> Entries:
    """The entries that are not below a limit; columns that had any are no longer `complete`."""
    keep = columns.value >= below
    kept = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
    end = columns.length.cumsum(0)
    length = kept[end] - kept[end - columns.length]
    complete &= length == columns.length
    return Entries(length, columns.col[keep], columns.value[keep])
