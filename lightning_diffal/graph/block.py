"""Products of some rows of M with what their neighbors have, wherever those are."""

from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph, csr
from lightning_diffal.graph.ragged import run_positions
from lightning_diffal.graph.reading import Reading


class Block:
    """Some rows of M, which take part in the products from different steps on.

    Args:
        rows: By their places, those of the first step before those of the second, and so on.
        within: How many of them take part in each step.

    What other ranks own is read once for all rows that point at it: at most one row of values an edge.
    """

    def __init__(self, graph: NeighborGraph, rows: Int[Tensor, " r"], within: list[int]) -> None:
        self.graph, self.within = graph, within
        degree = graph.degree[rows]
        self.edges = run_positions(graph.crow[rows], degree)
        self.crow = torch.zeros(len(rows) + 1, dtype=torch.long, device=rows.device)
        torch.cumsum(degree, 0, out=self.crow[1:])
        self.weight = graph.transition_weight[self.edges]
        self.last_edge: list[int] = self.crow[torch.as_tensor(within, device=rows.device)].tolist()
        self.col = graph.col[self.edges]
        if not graph.share.alone:
            self.col, self.nodes, self.since = self.read_once()

    def read_once(self) -> tuple[Int[Tensor, " e"], Int[Tensor, " u"], Int[Tensor, " u"]]:
        """For each edge the number of its node among those read, those nodes, and the step they are needed from."""
        halo, steps = self.graph.halo, len(self.within)
        number = halo.col[self.edges]
        since = torch.full_like(halo.nodes, steps, dtype=torch.int32)
        for step in reversed(range(steps)):  # the earliest has the last word
            since[number[: self.last_edge[step]]] = step
        read = (since < steps).nonzero()[:, 0]
        turn = torch.empty_like(halo.nodes)
        turn[read] = torch.arange(len(read), device=read.device)
        return turn[number], halo.nodes[read], since[read].long()

    @cached_property
    def reading(self) -> Reading:
        return Reading(self.graph.share, self.nodes, self.since, len(self.within))

    def around(self, values: Float[Tensor, "own w"], step: int = 0) -> Float[Tensor, "u w"]:
        """What the nodes have that the rows of this step point at; `values` is what the nodes of this rank have."""
        return values if self.graph.share.alone else self.reading(values, step)

    def times(self, around: Float[Tensor, "u w"], step: int = 0) -> Float[Tensor, "r w"]:
        """The rows of M that take part in this step times what is around them."""
        count, end = self.within[step], self.last_edge[step]
        return csr(self.crow[: count + 1], self.col[:end], self.weight[:end], len(around)) @ around
