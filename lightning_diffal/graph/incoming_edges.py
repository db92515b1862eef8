"""The edges of a graph by the node they point at."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_diffal.numerics.ragged import run_positions


@dataclass(frozen=True, eq=False)
class IncomingEdges:
    """The reverse adjacency: the rows `source[crow[j]:crow[j + 1]]` have an edge to node j, in ascending order.

    Memory: 8 bytes an edge and 8 a node.
    """

    crow: Int[Tensor, " n_plus_1"]
    source: Int[Tensor, " e"]

    @staticmethod
    def of(source: Int[Tensor, " e"], col: Int[Tensor, " e"], num_nodes: int) -> "IncomingEdges":
        target, order = col.sort(stable=True)
        crow = torch.searchsorted(target, torch.arange(num_nodes + 1, device=col.device))
        return IncomingEdges(crow, source[order])

    def sources(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " s"]:
        """The rows with an edge to any of `nodes`, once for each such edge."""
        return self.source[run_positions(self.crow[nodes], self.crow[nodes + 1] - self.crow[nodes])]
