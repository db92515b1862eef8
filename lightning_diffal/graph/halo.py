"""The edges from their other end, and the nodes that the rows of a rank point at."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_diffal.graph.row_partition import Share
from lightning_diffal.numerics.ragged import run_positions


@dataclass(frozen=True, eq=False)
class Halo:
    """The nodes that the rows of this rank point at, which may be of any rank, and the rows that point at them.

    Node number h of the halo is `nodes[h]`, and the places `source[crow[h]:crow[h + 1]]` have an edge to it. One
    process alone has all nodes in its halo. Memory: 16 bytes an edge, 8 of which one process alone does without, and 16
    for each node of the halo.
    """

    share: Share
    nodes: Int[Tensor, " h"]
    crow: Int[Tensor, " h_plus_1"]
    source: Int[Tensor, " e"]
    col: Int[Tensor, " e"]
    """The number in the halo of the node that each edge points at."""

    def rows_into(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " s"]:
        """The places with an edge to any of `nodes`, once for each such edge."""
        if not self.share.alone and len(self.nodes) > 0:
            number = torch.searchsorted(self.nodes, nodes).clamp_max_(len(self.nodes) - 1)
            nodes = number[self.nodes[number] == nodes]
        elif not self.share.alone:
            nodes = nodes[:0]
        return self.source[run_positions(self.crow[nodes], self.crow[nodes + 1] - self.crow[nodes])]


def halo_of(share: Share, source: Int[Tensor, " e"], col: Int[Tensor, " e"]) -> Halo:
    target, order = col.sort(stable=True)
    if share.alone:
        nodes = torch.arange(share.size, device=col.device)
        crow = torch.searchsorted(target, torch.arange(share.size + 1, device=col.device))
        return Halo(share, nodes, crow, source[order], col)
    nodes, number, count = target.unique_consecutive(return_inverse=True, return_counts=True)
    crow = torch.zeros(len(nodes) + 1, dtype=torch.long, device=col.device)
    torch.cumsum(count, 0, out=crow[1:])
    return Halo(share, nodes, crow, source[order], torch.empty_like(col).scatter_(0, order, number))
