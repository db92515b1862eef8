"""The choice of one mini-batch after another: unreached nodes first, then those with the smallest min_c |χ_c|."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.reach import Reach
from lightning_diffal.diffusion.scores import UNIT, IncrementalScores, RecomputedScores, class_columns, in_units
from lightning_diffal.diffusion.sparse_rows import SparseRows
from lightning_diffal.diffusion.sparse_scores import DENSE_SHARE, SparseScores
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.topk import topk_lowest
from lightning_diffal.selectors.query import Query

# Nodes whose reach is read at a time, in the order of influence.
CHUNK = 1024
# With so few classes dense masses are as fast as sparse ones, however few are nonzero.
FEW_CLASSES = 64


class MiniBatchChooser:
    """Chooses one mini-batch after another; labels are added in between.

    Unreached nodes are chosen by influence, which does not change, and by reach, which needs no χ. So χ is computed
    only when a mini-batch runs out of unreached nodes.

    Args:
        max_new_classes: How many classes may get their first label between mini-batches.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        labels: Int[Tensor, " n"],
        num_classes: int,
        steps: int,
        soft_labels: Float[Tensor, "n c"] | None,
        state_bytes: int,
        max_new_classes: int,
    ) -> None:
        self.graph, self.labels, self.num_classes, self.steps = graph, labels.clone(), num_classes, steps
        self.soft_labels, self.state_bytes = soft_labels, state_bytes
        columns = len(class_columns(labels, num_classes, soft_labels is not None))
        self.max_classes = min(num_classes, columns + max_new_classes)
        self.scores: IncrementalScores | SparseScores | RecomputedScores | None = None
        # With a soft start every node has mass, and none is unreached.
        self.unreached = None if soft_labels is not None else UnreachedNodes(graph, labels, steps)

    def choose(self, count: int) -> Query:
        explored = self.labels.new_empty(0) if self.unreached is None else self.unreached.most_influential(count)
        if len(explored) == count:
            refined = explored[:0]
            scores = self.graph.weight.new_zeros(count)
        else:
            refined, refined_scores = self.smallest_min_abs_chi(count - len(explored), explored)
            scores = torch.cat([torch.zeros_like(explored, dtype=refined_scores.dtype), refined_scores])
        reached = torch.arange(count, device=self.labels.device) >= len(explored)
        return Query(torch.cat([explored, refined]), scores.to(self.graph.weight.dtype), reached)

    def smallest_min_abs_chi(
        self, count: int, besides: Int[Tensor, " u"]
    ) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
        """The nodes with the smallest min_c |χ_c|, smallest first, without those in `besides`, which are chosen."""
        if self.scores is None:
            self.scores = self.new_scores()
        scores = self.scores.compute(count + len(besides))
        scores[besides] = float("inf")  # as adding their labels will do
        nodes = lowest_in_order(scores, count)
        return nodes, scores[nodes] / UNIT

    def new_scores(self) -> IncrementalScores | SparseScores | RecomputedScores:
        """Sparse masses where few are not zero or dense ones do not fit, and none kept where neither fits."""
        n, steps, soft = self.graph.num_nodes, self.steps, self.soft_labels
        dense_fits = IncrementalScores.bytes_needed(n, self.max_classes, steps) <= self.state_bytes
        if soft is None and self.max_classes > FEW_CLASSES:
            max_entries = self.state_bytes // SparseRows.BYTES_PER_ENTRY
            if dense_fits:
                max_entries = min(max_entries, int(DENSE_SHARE * n * self.max_classes))
            sparse = SparseScores(self.graph, self.labels, steps, max_entries)
            if not sparse.full:
                return sparse
        if dense_fits:
            return IncrementalScores(self.graph, self.labels, self.max_classes, steps, soft)
        return RecomputedScores(self.graph, self.labels, self.num_classes, steps, soft, self.state_bytes)

    def predicted_class(self, query: Query) -> Int[Tensor, " b"]:
        """The class with the largest χ for each chosen point, the lowest of equal ones; 0 where no label reaches."""
        classes = torch.zeros_like(query.indices)
        if self.scores is not None and bool(query.reached.any()):
            classes[query.reached] = self.scores.predicted_class(query.indices[query.reached])
        return classes

    def add_labels(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes
        if self.unreached is not None:
            self.unreached.reach.add_labels(nodes)
        if self.scores is not None:
            self.scores.add_labels(nodes, classes)
            if isinstance(self.scores, SparseScores) and self.scores.full:
                self.scores = None  # made again when it is needed, and dense then

    def num_unreached(self) -> int:
        """How many nodes no label had reached when the last choice was made, or before the first."""
        return 0 if self.unreached is None else self.unreached.count

    def set_steps(self, steps: int) -> None:
        self.steps = steps
        if self.unreached is not None:
            self.unreached.set_steps(steps)
        if self.scores is not None:
            self.scores.set_steps(steps)


def lowest_in_order(scores: Float[Tensor, " n"], count: int) -> Int[Tensor, " b"]:
    """Where the `count` lowest scores are, lowest first; the lower index of equal ones."""
    if count == 1:
        return scores.argmin(dim=0, keepdim=True)  # the first of equal ones, by its documentation
    nodes = topk_lowest(scores[None], count)[0].sort().values
    return nodes[scores[nodes].argsort(stable=True)]


class UnreachedNodes:
    """The nodes that no label reaches, by influence. Cost: O(n log n) once, then next to nothing a choice."""

    def __init__(self, graph: NeighborGraph, labels: Int[Tensor, " n"], steps: int) -> None:
        self.reach = Reach(graph, steps)
        self.reach.add_labels((labels != UNLABELED).nonzero()[:, 0])
        self.reach.update()
        # Stable: of equal influence, the lower index first.
        self.by_influence = in_units(graph.wide_influence).argsort(descending=True, stable=True)
        self.count = self.reach.num_unreached
        self.start_over()

    def set_steps(self, steps: int) -> None:
        """With fewer steps, nodes that were reached may be unreached again."""
        self.reach.set_steps(steps)
        self.start_over()

    def start_over(self) -> None:
        self.start = 0  # all nodes before this place are reached
        self.exhausted = False

    def most_influential(self, count: int) -> Int[Tensor, " b"]:
        """At most `count` unreached nodes, the largest influence first."""
        if self.exhausted:
            self.count = 0
            return self.by_influence[:0]
        self.reach.update()
        self.count = self.reach.num_unreached
        self.exhausted = self.count < count  # all that are left are chosen now
        count = min(count, self.count)
        chosen = [self.by_influence[:0]]
        place, missing = self.start, count
        while missing > 0:
            nodes = self.by_influence[place : place + CHUNK]
            nodes = nodes[~self.reach.reached(nodes)][:missing]
            place += CHUNK
            if missing == count and len(nodes) == 0:
                self.start = place
            chosen.append(nodes)
            missing -= len(nodes)
        return torch.cat(chosen)
