"""Products of some rows of M with the values of all nodes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph, csr
from lightning_diffal.numerics.ragged import run_positions


class RowBlock:
    """Some rows of M, which take part in the products from different steps on.

    Args:
        rows: Those of the first step before those of the second, and so on.
        within: How many of them take part in each step.
    """

    def __init__(self, graph: NeighborGraph, rows: Int[Tensor, " r"], within: list[int]) -> None:
        self.rows, self.within = rows, within
        degree = graph.degree[rows]
        edges = run_positions(graph.crow[rows], degree)
        self.crow = torch.zeros(len(rows) + 1, dtype=torch.long, device=rows.device)
        torch.cumsum(degree, 0, out=self.crow[1:])
        # Rows are sorted by step: those of the first steps stand first, and so do their edges.
        self.last_edge: list[int] = self.crow[torch.as_tensor(within, device=rows.device)].tolist()
        self.col, self.weight = graph.col[edges], graph.transition_weight[edges]

    def times(self, values: Float[Tensor, "n w"], step: int) -> Float[Tensor, "r w"]:
        """The rows of M that take part in this step times the values of all nodes."""
        count, end = self.within[step], self.last_edge[step]
        return csr(self.crow[: count + 1], self.col[:end], self.weight[:end], len(values)) @ values
