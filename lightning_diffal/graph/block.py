"""Products of some rows of M with what their neighbors have, wherever those are."""

from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph, csr
from lightning_diffal.graph.reading import Reading
from lightning_diffal.numerics.ragged import run_positions, run_starts


class Block:
    """Some rows of M, which take part in the products from different steps on.

    Args:
        rows: By their places, those of the first step before those of the second, and so on.
        within: How many of them take part in each step.

    What other ranks own is read once for all rows that point at it: at most one row of values an edge.
    """

    def __init__(self, graph: NeighborGraph, rows: Int[Tensor, " r"], within: list[int]) -> None:
        self.share, self.rows, self.within = graph.share, rows, within
        degree = graph.degree[rows]
        edges = run_positions(graph.crow[rows], degree)
        self.crow = torch.zeros(len(rows) + 1, dtype=torch.long, device=rows.device)
        torch.cumsum(degree, 0, out=self.crow[1:])
        # Rows come by their steps: those of the first ones stand first, and so do their edges.
        self.last_edge: list[int] = self.crow[torch.as_tensor(within, device=rows.device)].tolist()
        self.weight = graph.transition_weight[edges]
        if self.share.alone:
            self.col = graph.col[edges]
            return
        halo, number = graph.halo, graph.halo.col[edges]
        since = torch.full_like(halo.nodes, len(within), dtype=torch.int32)
        for step in reversed(range(len(within))):  # the earliest has the last word
            since[number[: self.last_edge[step]]] = step
        read = (since < len(within)).nonzero()[:, 0]
        turn = torch.empty_like(halo.nodes)
        turn[read] = torch.arange(len(read), device=read.device)
        self.col, self.nodes, self.since = turn[number], halo.nodes[read], since[read].long()

    @cached_property
    def reading(self) -> Reading:
        return Reading(self.share, self.nodes, self.since, len(self.within))

    def around(self, values: Float[Tensor, "own w"], step: int) -> Float[Tensor, "u w"]:
        """What the nodes have that the rows of this step point at; `values` is what the nodes of this rank have."""
        return values if self.share.alone else self.reading(values, step)

    def times(self, around: Float[Tensor, "u w"], step: int) -> Float[Tensor, "r w"]:
        """The rows of M that take part in this step times what is around them."""
        count, end = self.within[step], self.last_edge[step]
        return csr(self.crow[: count + 1], self.col[:end], self.weight[:end], len(around)) @ around


def blocks_of(graph: NeighborGraph, rows: Int[Tensor, " r"], within: list[int], width: int) -> list[Block]:
    """The rows in blocks that read at most a piece of values of this width; as many blocks on every rank."""
    share = graph.share
    pieces, most = 1, max(1, share.ranks.piece_bytes // (8 * width))
    degree = graph.degree[rows]
    if not share.alone and graph.most_edges > most:
        pieces = max(1, *share.ranks.tell(-(-int(degree.sum()) // most)))
    if pieces == 1:
        return [Block(graph, rows, within)]
    piece = (run_starts(degree) // most).clamp_max_(pieces - 1)
    edges = torch.searchsorted(piece, torch.arange(pieces + 1, device=rows.device)).tolist()
    return [
        Block(graph, rows[start:stop], [min(max(count - start, 0), stop - start) for count in within])
        for start, stop in pairwise(edges)
    ]
