"""The edges of a graph from their other end."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_diffal.numerics.ragged import run_positions


@dataclass(frozen=True, eq=False)
class IncomingEdges:
    """The rows with an edge to node j are `source[crow[j]:crow[j + 1]]`. Memory: 8 bytes an edge and 8 a node."""

    crow: Int[Tensor, " n_plus_1"]
    source: Int[Tensor, " e"]

    def sources(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " s"]:
        """The rows with an edge to any of `nodes`, once for each such edge."""
        return self.source[run_positions(self.crow[nodes], self.crow[nodes + 1] - self.crow[nodes])]


def incoming_edges(num_nodes: int, source: Int[Tensor, " e"], col: Int[Tensor, " e"]) -> IncomingEdges:
    target, order = col.sort(stable=True)
    crow = torch.searchsorted(target, torch.arange(num_nodes + 1, device=col.device))
    return IncomingEdges(crow, source[order])
