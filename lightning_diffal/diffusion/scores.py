"""How torn every node is, as labels are added: by recomputing all of χ, or only what a new label can change."""

from itertools import accumulate, pairwise
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.reach import backwards
from lightning_diffal.diffusion.walk import Walk, initial_mass, label_mass, signal
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.graph.row_block import RowBlock
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype

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
        self.seen = torch.zeros_like(self.labels, dtype=torch.bool)
        walk = Walk(graph)
        self.mass = [initial_mass(self.labels, self.classes, soft_labels)]
        for _ in range(steps):
            self.mass.append(walk(self.mass[-1], self.labels))
        self.set_steps(steps)

    @staticmethod
    def bytes_needed(num_rows: int, num_classes: int, steps: int) -> int:
        return 8 * (steps + 1) * (num_classes + 1) * num_rows

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
        block = RowBlock(self.graph, rows, within)
        for step, (before, after) in enumerate(pairwise(self.mass)):
            after[block.rows[: block.within[step]]] = block.times(before, step)
        self.scores[rows] = tornness(self.mass[-1][rows])

    def frontier(self, nodes: Int[Tensor, " b"]) -> tuple[Int[Tensor, " r"], list[int]]:
        """Unlabeled rows with a walk to `nodes`, the nearest first, and how many are within 1, 2, ... steps."""

        def enter(before: Int[Tensor, " s"], step: int) -> Int[Tensor, " r"]:
            rows: Tensor = before[(self.labels[before] == UNLABELED) & ~self.seen[before]].unique()
            self.seen[rows] = True
            return rows

        steps = len(self.mass) - 1
        layers = list(backwards(self.graph, nodes, steps, enter))
        within = list(accumulate(len(layer) for layer in layers))
        rows = torch.cat(layers)
        self.seen[rows] = False
        return rows, within + within[-1:] * (steps - len(within))

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
        self.walk = Walk(graph)
        self.steps = steps

    def set_steps(self, steps: int) -> None:
        self.steps = steps

    def learn(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes

    def final_mass(self, classes: range) -> Float[Tensor, "n w"]:
        mass = initial_mass(self.labels, classes, self.soft_labels)
        for _ in range(self.steps):
            mass = self.walk(mass, self.labels)
        return mass

    def ranking(self) -> Float[Tensor, " n"]:
        scores = torch.full_like(self.labels, float("inf"), dtype=wide_dtype(self.labels.device))
        for classes in self.blocks:
            torch.minimum(scores, tornness(self.final_mass(classes)), out=scores)
        scores[self.labels != UNLABELED] = float("inf")
        return scores

    def likeliest(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        mass = torch.cat([self.final_mass(classes)[nodes, :-1] for classes in self.blocks], dim=1)
        return in_units(mass).argmax(dim=1)


States: TypeAlias = KeptStates | RecomputedStates
