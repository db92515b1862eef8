"""Products with the rows of M that each step of a walk needs."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.numerics.ragged import run_positions
from lightning_diffal.numerics.sparse import csr


class RowBlock:
    """A selection of rows of M = D⁻¹W; each step of a walk uses the first `within[step]` of them.

    Args:
        rows: Those of the first step first, then those that the second adds, and so on.
        within: The number of rows of each step.

    Memory: 16 bytes for each edge of the rows.
    """

    def __init__(self, graph: NeighborGraph, rows: Int[Tensor, " r"], within: list[int]) -> None:
        self.rows, self.within = rows, within
        degree = graph.degree[rows]
        edges = run_positions(graph.crow[rows], degree)
        self.crow = torch.nn.functional.pad(degree.cumsum(0), (1, 0))
        # The rows of earlier steps come first, and so do their edges.
        self.num_edges: list[int] = self.crow[torch.as_tensor(within, device=rows.device)].tolist()
        self.col, self.weight = graph.col[edges], graph.transition_weight[edges]

    def times(self, values: Float[Tensor, "n w"], step: int) -> Float[Tensor, "r w"]:
        """The rows of M that take part in this step times the values of all nodes."""
        count, end = self.within[step], self.num_edges[step]
        return csr(self.crow[: count + 1], self.col[:end], self.weight[:end], len(values)) @ values
