"""Who has been reached by a label, and in how many steps."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph


def backwards(
    graph: NeighborGraph, nodes: Int[Tensor, " b"], steps: int, enter: Callable[[Tensor, int], Tensor]
) -> Iterator[Int[Tensor, " r"]]:
    """Follow the edges that lead to `nodes` back, step by step: the rows that are entered in each.

    Args:
        enter: Given the rows with an edge to those entered one step before, and the step, says which it enters, once
            each. It remembers them: they are given to it again.
    """
    for step in range(1, steps + 1):
        nodes = enter(graph.incoming.sources(nodes), step)
        yield nodes
        if len(nodes) == 0:
            return


class Reach:
    """The steps each node needs to walk to the nearest label, kept up to date as labels are added.

    A node is reached in T steps if `hops` ≤ T: by counting, so that no mass is too small to be seen. A new label is
    followed backwards along the edges, and only where it is nearer than any label before it. A node can come nearer at
    most T times, so all labels together cost O(T · edges), however many they are.

    Labels wait until somebody asks.
    """

    def __init__(self, graph: NeighborGraph, steps: int) -> None:
        self.graph, self.waiting = graph, list[Tensor]()
        self.hops = torch.full((graph.num_nodes,), steps + 1, dtype=torch.int32, device=graph.device)
        self.set_steps(steps)

    def set_steps(self, steps: int) -> None:
        """Ask only about so many steps from now on. They only shrink."""
        self.steps = steps
        self.unreached = int((self.hops > steps).sum())

    def add(self, nodes: Int[Tensor, " b"]) -> None:
        """Count the steps to these nodes too: they have a label now."""
        self.waiting.append(nodes)

    def catch_up(self) -> None:
        """Follow the labels that wait."""
        if not self.waiting:
            return
        nodes, self.waiting = torch.cat(self.waiting), []
        self.enter(nodes, 0)
        for _ in backwards(self.graph, nodes, self.steps, self.enter):
            pass

    def enter(self, rows: Int[Tensor, " s"], hop: int) -> Int[Tensor, " r"]:
        hops = self.hops[rows]
        rows, hops = rows[hops > hop], hops[hops > hop]
        if len(rows):
            rows = rows.unique()
            self.unreached -= int((self.hops[rows] > self.steps).sum())
            self.hops[rows] = hop
        return rows

    def reached(self, rows: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        return self.hops[rows] <= self.steps
