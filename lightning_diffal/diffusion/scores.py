"""min_c |χ_c| of every node as labels are added: dense masses, all recomputed or those a label changes."""

from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from lightning_diffal.diffusion.reach import backward_layers
from lightning_diffal.diffusion.walk import initial_mass, label_mass, signal, step
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.graph.row_block import RowBlock
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype

# Scores and masses are compared in units of 2⁻⁴⁰, about 10⁻¹². That is far above what the order of a sum changes and
# far below any difference that matters, so equal means equal on every device, and the lower index or class decides.
UNIT = 2.0**40


def in_units(value: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    return (value * UNIT).round()


def min_abs_chi(mass: Float[Tensor, "b w"]) -> Float[Tensor, " b"]:
    """min_c |χ_c| in units of 2⁻⁴⁰: 0 where two classes have half of the mass each, or where there is no mass.

    Classes without a column change nothing: their |χ_c| = r is as large as any can be.
    """
    return in_units(signal(mass).abs().amin(dim=1))


def class_columns(labels: Int[Tensor, " n"], num_classes: int, soft: bool) -> Int[Tensor, " c"]:
    """The classes that need a column, ascending: all with soft labels, else those with a label; at least one column."""
    if soft:
        return torch.arange(num_classes, device=labels.device)
    classes = labels[labels != UNLABELED].unique()
    return classes if len(classes) else torch.full_like(labels[:1], UNLABELED)


def frontier(
    graph: NeighborGraph, labels: Int[Tensor, " n"], nodes: Int[Tensor, " b"], steps: int
) -> tuple[Int[Tensor, " r"], list[int]]:
    """Unlabeled rows with a walk to `nodes` through such rows, the nearest first; how many are within 1, 2, ... steps.

    χ⁽ᵗ⁾ changes only at those within t steps where `nodes` get labels.
    """
    visited = torch.zeros_like(labels, dtype=torch.bool)

    def visit(sources: Int[Tensor, " s"], _: int) -> Int[Tensor, " r"]:
        rows: Tensor = sources[(labels[sources] == UNLABELED) & ~visited[sources]].unique()
        visited[rows] = True
        return rows

    layers = list(backward_layers(graph, nodes, steps, visit))
    within = list(accumulate(len(layer) for layer in layers))
    return torch.cat(layers), within + within[-1:] * (steps - len(within))


class IncrementalScores:
    """χ⁽⁰⁾ to χ⁽ᵀ⁾, kept; a new label recomputes only the rows it reaches.

    The rows of its `frontier` are recomputed, not corrected, so the result is that of T full products to the last bit.

    Args:
        max_classes: How many classes may have a label in the end. With soft labels it is the number of classes.

    Cost: O(frontier · k · c) a label, which does not grow with n; c are the labeled classes, or all with soft labels.
    Memory: at most 8 (T + 1) (`max_classes` + 1) bytes a node.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        labels: Int[Tensor, " n"],
        max_classes: int,
        steps: int,
        soft_labels: Float[Tensor, "n c"] | None,
    ) -> None:
        self.graph, self.labels, self.max_classes = graph, labels.clone(), max_classes
        self.classes = class_columns(labels, max_classes, soft_labels is not None)
        self.mass = [initial_mass(self.labels, self.classes, soft_labels)]
        for _ in range(steps):
            self.mass.append(step(graph, self.mass[-1], self.labels))
        self.set_steps(steps)

    @staticmethod
    def bytes_needed(num_nodes: int, num_classes: int, steps: int) -> int:
        return 8 * (steps + 1) * (num_classes + 1) * num_nodes

    def set_steps(self, steps: int) -> None:
        # T only shrinks: later states are not needed again.
        del self.mass[steps + 1 :]
        self.scores = min_abs_chi(self.mass[-1])
        self.scores[self.labels != UNLABELED] = float("inf")

    def compute(self, count: int) -> Float[Tensor, " n"]:
        """min_c |χ_c| of every node, not only the `count` lowest, in units of 2⁻⁴⁰; infinite where labeled."""
        return self.scores

    def add_labels(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.add_columns(classes)
        self.labels[nodes] = classes
        for mass in self.mass:
            mass[nodes] = label_mass(classes, self.classes)
        self.scores[nodes] = float("inf")
        rows, within = frontier(self.graph, self.labels, nodes, len(self.mass) - 1)
        if len(rows) == 0:
            return
        block = RowBlock(self.graph, rows, within)
        for number, (before, after) in enumerate(pairwise(self.mass)):
            after[rows[: within[number]]] = block.times(before, number)
        self.scores[rows] = min_abs_chi(self.mass[-1][rows])

    def add_columns(self, classes: Int[Tensor, " b"]) -> None:
        """Give each class that has none a column. At least twice as many each time, since all mass is copied."""
        new = classes.unique()
        new = new[~torch.isin(new, self.classes)]
        empty = (self.classes == UNLABELED).nonzero()[:, 0]
        if len(new) > len(empty):
            width = len(self.classes)
            more = max(len(new) - len(empty), min(width, self.max_classes - width))
            self.classes = pad(self.classes, (0, more), value=UNLABELED)
            for place, mass in enumerate(self.mass):
                self.mass[place] = torch.cat([pad(mass[:, :-1], (0, more)), mass[:, -1:]], dim=1)
            empty = (self.classes == UNLABELED).nonzero()[:, 0]
        self.classes[empty[: len(new)]] = new

    def predicted_class(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        """The class with the largest χ, the lowest of equal ones."""
        mass = in_units(self.mass[-1][nodes, :-1])
        largest = mass.amax(dim=1, keepdim=True)
        lowest = torch.where(mass == largest, self.classes, torch.iinfo(torch.long).max).amin(dim=1)
        return torch.where(largest[:, 0] > 0, lowest, 0)  # without mass all classes are equal


class RecomputedScores:
    """The same without keeping χ: T full products whenever the scores are needed, some classes at a time.

    Cost: O(T · edges · c) a mini-batch; c are the labeled classes, or all with soft labels. Memory: `state_bytes`, or
    48 bytes a node where that is more, and 24 bytes a node.
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
        self.graph, self.labels, self.num_classes, self.steps = graph, labels.clone(), num_classes, steps
        self.soft_labels = soft_labels
        # Two states exist at a time, and the signal of the second.
        self.width = max(1, state_bytes // (24 * graph.num_nodes) - 1)

    def set_steps(self, steps: int) -> None:
        self.steps = steps

    def add_labels(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes

    def compute(self, count: int) -> Float[Tensor, " n"]:
        """min_c |χ_c| of every node, as `IncrementalScores` has it. Remembers the class of the largest χ."""
        labels = self.labels
        classes = class_columns(labels, self.num_classes, self.soft_labels is not None)
        scores = torch.full_like(labels, float("inf"), dtype=wide_dtype(labels.device))
        largest, self.best_class = torch.zeros_like(scores), torch.zeros_like(labels)
        for block in classes.split(self.width):
            mass = initial_mass(labels, block, self.soft_labels)
            for _ in range(self.steps):
                mass = step(self.graph, mass, labels)
            torch.minimum(scores, min_abs_chi(mass), out=scores)
            most, column = mass[:, :-1].mul_(UNIT).round_().max(dim=1)  # the first of equal ones
            # Classes ascend: an equal one that comes later is not the lowest.
            self.best_class = torch.where(most > largest, block[column], self.best_class)
            torch.maximum(largest, most, out=largest)
        scores[labels != UNLABELED] = float("inf")
        return scores

    def predicted_class(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        """The class with the largest χ when the scores were last computed, the lowest of equal ones."""
        return self.best_class[nodes]
