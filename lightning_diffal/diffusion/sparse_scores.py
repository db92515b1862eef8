"""min_c |χ_c| of every node as labels are added, where most nodes have mass of few classes."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.scores import frontier, in_units
from lightning_diffal.diffusion.sparse_rows import Entries, SparseRows, transition_times
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.graph.row_block import RowBlock
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.highest import HighestFirst
from lightning_diffal.numerics.precision import wide_dtype

# Sparse and dense masses take about as long where the nonzero ones of all steps are this share of one dense state.
DENSE_SHARE = 1 / 2
# So many scores are computed together at least: fewer take as long.
SCORES_AT_LEAST = 64


class SparseScores:
    """The same as `IncrementalScores`, with only the masses that are not zero: column 0 is the total, then classes.

    A node has mass of a class only if a label of it is within T steps, so that thousands of classes cost little more
    than those nearby. min_c |χ_c| needs no other: without mass it is the total r, as large as any can be.

    χ⁽ᵀ⁾ has the most entries and is not kept. With p the probability that a walk of T steps from a node ends at one of
    the new labels, its χ_c change by at most 2p: they change there, within [-1, 1]. So a score is first lowered by 2p,
    and computed only when no other is lower.

    Args:
        max_entries: Where more masses than that are not zero, `full` is set, and the scores are of no use.

    Cost: O(frontier · k · s) a label, where s are the classes with mass at a node after T - 2 steps, and O(k · s) with
    T - 1 steps for each score that is computed. Memory: `SparseRows.BYTES_PER_ENTRY` for each of the n · s masses of
    each step, and 16 T + 17 bytes a node.
    """

    def __init__(self, graph: NeighborGraph, labels: Int[Tensor, " n"], steps: int, max_entries: int) -> None:
        self.graph, self.max_entries, self.full = graph, max_entries, False
        self.labels = torch.full_like(labels, UNLABELED)
        self.classes = self.labels[:1].clone()  # of each column; none for the total
        self.mass = [SparseRows(len(labels), labels.device) for _ in range(steps)]  # χ⁽⁰⁾ to χ⁽ᵀ⁻¹⁾
        self.ends_there = torch.zeros_like(labels, dtype=wide_dtype(labels.device))[:, None]  # between uses
        self.negative = HighestFirst(self.ends_there[:, 0])  # scores: the highest is the lowest score
        self.is_bound = torch.zeros_like(labels, dtype=torch.bool)  # whether a score may be higher than that
        labeled = (labels != UNLABELED).nonzero()[:, 0]
        self.add_labels(labeled, labels[labeled])

    def set_steps(self, steps: int) -> None:
        # T only shrinks: later states are not needed again.
        last = self.mass[steps]
        del self.mass[steps:]
        for rows in torch.arange(len(self.labels), device=self.labels.device).split(2**16):
            self.negative[rows] = -min_abs_chi(last[rows])
        self.negative[(self.labels != UNLABELED).nonzero()[:, 0]] = -float("inf")
        self.is_bound[:] = False

    def compute(self, count: int) -> Float[Tensor, " n"]:
        """min_c |χ_c| in units of 2⁻⁴⁰ of the `count` lowest nodes and their equals; others are no lower than these.

        Infinite where labeled.
        """
        more = SCORES_AT_LEAST
        while True:
            nodes = self.negative.topk(count + more)
            scores = self.negative[nodes]
            needed = scores >= scores[:count].amin()
            all_found = not bool(needed[-1]) or count + more >= len(self.labels)
            if all_found and not bool((self.is_bound[nodes] & needed).any()):
                return -self.negative.values
            # With more than those that are needed now: the next lowest would be needed next.
            rows = nodes[self.is_bound[nodes]]
            for some, entries in transition_times(self.graph, rows, self.mass[-1], len(self.classes)):
                self.negative[some] = -min_abs_chi(entries)
            self.is_bound[rows] = False
            more *= 2

    def add_labels(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes
        column = torch.stack([torch.zeros_like(classes), self.columns(classes)], dim=1).flatten()
        one = Entries(torch.full_like(nodes, 2), column, torch.ones_like(column, dtype=self.ends_there.dtype))
        for mass in self.mass:
            mass[nodes] = one
        rows, within = frontier(self.graph, self.labels, nodes, len(self.mass))
        for step, (before, after) in enumerate(pairwise(self.mass)):
            for some, entries in transition_times(self.graph, rows[: within[step]], before, len(self.classes)):
                after[some] = entries
                if sum(mass.num_entries for mass in self.mass) > self.max_entries:
                    self.full = True
                    return
        self.lower(nodes, rows, within)

    def lower(self, nodes: Int[Tensor, " b"], rows: Int[Tensor, " r"], within: list[int]) -> None:
        """Lower the scores of the frontier `rows` to what they cannot be below with labels at `nodes`."""
        ends_there = self.ends_there
        ends_there[nodes] = 1
        block = RowBlock(self.graph, rows, within)
        for step in range(len(self.mass)):
            ends_there[rows[: within[step]]] = block.times(ends_there, step)
        rounding = 2  # units that it may cost
        self.negative[rows] = self.negative[rows] + in_units(2 * ends_there[rows, 0]) + rounding
        self.is_bound[rows] = True
        self.negative[nodes], self.is_bound[nodes] = -float("inf"), False
        ends_there[rows], ends_there[nodes] = 0, 0

    def columns(self, classes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        """The column of each class; those that had none get the next ones."""
        new = classes.unique()
        self.classes = torch.cat([self.classes, new[~torch.isin(new, self.classes)]])
        ascending, column = self.classes.sort()
        return column[torch.searchsorted(ascending, classes)]

    def predicted_class(self, nodes: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        """The class with the largest χ, the lowest of equal ones."""
        lowest = []
        for _, entries in transition_times(self.graph, nodes, self.mass[-1], len(self.classes)):
            mass = in_units(torch.where(entries.col == 0, 0.0, entries.value))
            largest = torch.segment_reduce(mass, "max", lengths=entries.length, initial=0)
            equal = (mass > 0) & (mass == largest.repeat_interleave(entries.length))
            row = torch.repeat_interleave(entries.length)[equal]
            none = torch.full_like(entries.length, torch.iinfo(torch.long).max)
            found = none.scatter_reduce(0, row, self.classes[entries.col[equal]], "amin")
            lowest.append(torch.where(largest > 0, found, 0))  # without mass all classes are equal
        return torch.cat(lowest)


def min_abs_chi(mass: Entries) -> Float[Tensor, " b"]:
    """min_c |χ_c| of each row in units of 2⁻⁴⁰. Column 0 is the total; its 2r - r stands for classes without mass.

    0 where there is no mass.
    """
    total = mass.sum(torch.where(mass.col == 0, mass.value, 0.0)).repeat_interleave(mass.length)
    least = torch.segment_reduce((2 * mass.value - total).abs(), "min", lengths=mass.length, initial=float("inf"))
    return in_units(torch.where(mass.length > 0, least, 0.0))
