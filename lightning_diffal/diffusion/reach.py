"""The number of steps from each node to the nearest label."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph


def backward_layers(
    graph: NeighborGraph, nodes: Int[Tensor, " b"], steps: int, visit: Callable[[Tensor, int], Tensor]
) -> Iterator[Int[Tensor, " r"]]:
    """Follow the edges that lead to `nodes` backward, step by step: the rows visited in each step.

    Args:
        visit: Called with the rows that have an edge to those of the step before, once for each such edge, and the
            step. Returns those to visit, each once, and marks them, since they may come again.
    """
    rows = nodes
    for step in range(1, steps + 1):
        rows = visit(graph.predecessors(rows), step)
        yield rows
        if len(rows) == 0:
            return


class Reach:
    """The steps each node needs to walk to the nearest label, kept up to date as labels are added.

    A node is reached in T steps if `hops` ≤ T: by counting, so that no mass is too small to be seen. A new label is
    followed backward along the edges, and only where it is nearer than any label before it. A node can come nearer at
    most T times, so all labels together cost O(T · edges), however many they are.
    """

    def __init__(self, graph: NeighborGraph, steps: int) -> None:
        self.graph, self.pending = graph, list[Tensor]()
        self.hops = torch.full((graph.num_nodes,), steps + 1, dtype=torch.int32, device=graph.device)
        self.set_steps(steps)

    def set_steps(self, steps: int) -> None:
        """Lower the number of steps that are counted."""
        self.steps = steps
        self.num_unreached = int((self.hops > steps).sum())

    def add_labels(self, nodes: Int[Tensor, " b"]) -> None:
        """These nodes have a label now. Their steps are counted by the next `update`."""
        self.pending.append(nodes)

    def update(self) -> None:
        """Count the steps to the labels added since the last update."""
        if not self.pending:
            return
        nodes, self.pending = torch.cat(self.pending), []
        self.visit(nodes, 0)
        for _ in backward_layers(self.graph, nodes, self.steps, self.visit):
            pass

    def visit(self, rows: Int[Tensor, " s"], hop: int) -> Int[Tensor, " r"]:
        rows = rows[self.hops[rows] > hop].unique()
        self.num_unreached -= int((self.hops[rows] > self.steps).sum())
        self.hops[rows] = hop
        return rows

    def reached(self, rows: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        return self.hops[rows] <= self.steps
