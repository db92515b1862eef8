"""Who has been reached by a label, and in how many steps."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph


class Reach:
    """The steps each node needs to walk to the nearest label, kept up to date as labels are added.

    A node is reached in T steps if `hops` ≤ T: by counting, so that no mass is too small to be seen. A new label is
    followed backwards along the edges, and only where it is nearer than any label before it. A node can come nearer at
    most T times, so all labels together cost O(T · edges), however many they are.
    """

    def __init__(self, graph: NeighborGraph, steps: int) -> None:
        self.graph = graph
        self.steps = steps
        self.hops = torch.full((graph.num_nodes,), steps + 1, dtype=torch.int32, device=graph.device)

    def add(self, nodes: Int[Tensor, " b"]) -> None:
        """Count the steps to these nodes too: they have a label now."""
        self.hops[nodes] = 0
        for hop in range(1, self.steps + 1):
            before = self.graph.halo.rows_into(nodes)
            nodes = before[self.hops[before] > hop].unique()
            if len(nodes) == 0:
                return
            self.hops[nodes] = hop

    def reached(self, nodes: Int[Tensor, " b"], steps: int) -> Bool[Tensor, " b"]:
        return self.hops[nodes] <= steps

    def unreached(self, steps: int) -> int:
        """How many nodes have no label within `steps` steps."""
        return int((self.hops > steps).sum())
