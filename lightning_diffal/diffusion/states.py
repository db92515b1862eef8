"""How torn every node is, as labels are added: by recomputing all of χ, or only what a new label can change."""

from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.mass import initial_mass, label_mass, signal, walk
from lightning_diffal.graph.neighbor_graph import NeighborGraph, csr
from lightning_diffal.graph.precision import wide_dtype
from lightning_diffal.graph.ragged import run_positions
from lightning_diffal.labels import UNLABELED

# Scores and masses are compared in units of 2⁻⁴⁰, about 10⁻¹². That is far above what the order of a sum changes and
# far below any difference that matters, so equal means equal on every device, and the lower index or class decides.
UNIT = 2.0**40


def in_units(value: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    return (value * UNIT).round()


def tornness(mass: Float[Tensor, "b w"]) -> Float[Tensor, " b"]:
    """min_c |χ_c| in units of 2⁻⁴⁰: 0 where the classes pull equally, or none pulls at all."""
    return in_units(signal(mass).abs().amin(dim=1))


class KeptStates:
    """χ⁽⁰⁾ to χ⁽ᵀ⁾, kept; a new label recomputes only the rows it reaches.

    χ⁽ᵗ⁾ changes only at nodes with a walk of at most t steps to the new label through unlabeled nodes. Their rows are
    recomputed, not corrected, so the result is that of T full products to the last bit.

    Cost: O(frontier · k · c) a label, which does not grow with n. Memory: 8 (T + 1) (c + 1) bytes a node.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        labels: Int[Tensor, " n"],
        num_classes: int,
        steps: int,
        soft_labels: Float[Tensor, "n c"] | None,
    ) -> None:
        self.graph, self.labels = graph, labels.clone()
        self.classes = range(num_classes)
        self.seen = torch.zeros_like(labels, dtype=torch.bool)
        self.mass = [initial_mass(labels, self.classes, soft_labels)]
        for _ in range(steps):
            self.mass.append(walk(graph, self.mass[-1], labels))
        self.set_steps(steps)

    @staticmethod
    def bytes_needed(num_nodes: int, num_classes: int, steps: int) -> int:
        return 8 * (steps + 1) * (num_classes + 1) * num_nodes

    def set_steps(self, steps: int) -> None:
        # Later states are no longer asked for: T only shrinks.
        del self.mass[steps + 1 :]
        self.scores = tornness(self.mass[-1])
        self.scores[self.labels != UNLABELED] = float("inf")

    def ranking(self) -> Float[Tensor, " n"]:
        """How torn every node is; infinite where labeled."""
        return self.scores

    def learn(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes
        known = label_mass(classes, self.classes)
        for mass in self.mass:
            mass[nodes] = known
        self.scores[nodes] = float("inf")
        rows, within = self.frontier(nodes)
        if len(rows) == 0:
            return
        degree = self.graph.degree[rows]
        edges = run_positions(self.graph.crow[rows], degree)
        col, weight = self.graph.col[edges], self.graph.transition_weight[edges]
        crow = torch.zeros(len(rows) + 1, dtype=torch.long, device=rows.device)
        torch.cumsum(degree, 0, out=crow[1:])
        # Rows come by their distance to the new labels: those within t steps are the first, and so are their edges.
        last_edge = crow[torch.as_tensor(within, device=crow.device)].tolist()
        for step, (count, end) in enumerate(zip(within, last_edge, strict=True), start=1):
            near = csr(crow[: count + 1], col[:end], weight[:end], self.graph.num_nodes)
            self.mass[step][rows[:count]] = near @ self.mass[step - 1]
        self.scores[rows] = tornness(self.mass[-1][rows])

    def frontier(self, nodes: Int[Tensor, " b"]) -> tuple[Int[Tensor, " r"], list[int]]:
        """Unlabeled nodes with a walk to `nodes`, the nearest first, and how many are within 1, 2, ... steps."""
        layers: list[Tensor] = []
        within: list[int] = []
        for _ in self.mass[1:]:
            before = self.graph.halo.rows_into(nodes)
            nodes = before[(self.labels[before] == UNLABELED) & ~self.seen[before]].unique()
            self.seen[nodes] = True
            layers.append(nodes)
            within.append(len(nodes) + (within[-1] if within else 0))
        rows = torch.cat(layers)
        self.seen[rows] = False
        return rows, within

    def likeliest(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        """The class with the largest χ, the lowest of equal ones."""
        return in_units(self.mass[-1][nodes, :-1]).argmax(dim=1)


class RecomputedStates:
    """The same without keeping anything: T full products whenever the scores are asked for, some classes at a time.

    Cost: O(T · edges · c) a mini-batch. Memory: `state_bytes`, or 48 bytes a node where that is more.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        labels: Int[Tensor, " n"],
        num_classes: int,
        steps: int,
        soft_labels: Float[Tensor, "n c"] | None,
        state_bytes: int,
    ) -> None:
        self.graph, self.labels, self.soft_labels = graph, labels.clone(), soft_labels
        # Two states live at a time, and the signal of the second.
        width = max(1, state_bytes // (24 * graph.num_nodes) - 1)
        self.blocks = [range(start, min(start + width, num_classes)) for start in range(0, num_classes, width)]
        self.steps = steps

    def set_steps(self, steps: int) -> None:
        self.steps = steps

    def learn(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes

    def final_mass(self, classes: range) -> Float[Tensor, "n w"]:
        mass = initial_mass(self.labels, classes, self.soft_labels)
        for _ in range(self.steps):
            mass = walk(self.graph, mass, self.labels)
        return mass

    def ranking(self) -> Float[Tensor, " n"]:
        scores = torch.full_like(self.labels, float("inf"), dtype=wide_dtype(self.labels.device))
        for classes in self.blocks:
            torch.minimum(scores, tornness(self.final_mass(classes)), out=scores)
        scores[self.labels != UNLABELED] = float("inf")
        return scores

    def likeliest(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        return in_units(torch.cat([self.final_mass(classes)[nodes, :-1] for classes in self.blocks], dim=1)).argmax(
            dim=1
        )


States: TypeAlias = KeptStates | RecomputedStates
