"""Explore while there are unreached points, then refine."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.reach import Reach
from lightning_diffal.diffusion.scores import UNIT, KeptStates, RecomputedStates, States, in_units
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.topk import topk_lowest
from lightning_diffal.selectors.base import Query

# Places in the order of influence looked at together.
GLANCE = 1024


class Chooser:
    """Chooses one mini-batch after another, and learns its labels in between.

    The unreached are chosen by influence, which does not change, and by reach, which needs no χ. So χ is computed only
    when a mini-batch runs out of unreached points.
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
        self.soft_labels, self.state_bytes = soft_labels, state_bytes
        self.states: States | None = None
        # With a soft start every node has mass, and there is nothing to explore.
        self.explorer = None if soft_labels is not None else Explorer(graph, labels, steps)

    def choose(self, count: int) -> Query:
        fresh = self.labels.new_empty(0) if self.explorer is None else self.explorer.choose(count)
        if len(fresh) == count:
            torn = fresh[:0]
            scores = self.graph.weight.new_zeros(count)
        else:
            torn, torn_scores = self.most_torn(count - len(fresh), fresh)
            scores = torch.cat([torch.zeros_like(fresh, dtype=torn_scores.dtype), torn_scores])
        reached = torch.arange(count, device=self.labels.device) >= len(fresh)
        return Query(torch.cat([fresh, torn]), scores.to(self.graph.weight.dtype), reached)

    def most_torn(self, count: int, besides: Int[Tensor, " u"]) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
        """The nodes with the smallest min_c |χ_c|, smallest first, besides all that are unreached."""
        if self.states is None:
            self.states = self.new_states()
        ranking = self.states.ranking()
        ranking[besides] = float("inf")  # they are chosen now, as learning their labels will say again
        nodes = first_lowest(ranking, min(count, len(ranking)))
        return nodes, ranking[nodes] / UNIT

    def new_states(self) -> States:
        needed = KeptStates.bytes_needed(self.graph.num_nodes, self.num_classes, self.steps)
        if needed <= self.state_bytes:
            return KeptStates(self.graph, self.labels, self.num_classes, self.steps, self.soft_labels)
        return RecomputedStates(
            self.graph, self.labels, self.num_classes, self.steps, self.soft_labels, self.state_bytes
        )

    def likeliest(self, query: Query) -> Int[Tensor, " b"]:
        """The class with the largest χ for each chosen point, the lowest of equal ones; 0 where nothing has arrived."""
        classes = torch.zeros_like(query.indices)
        if self.states is not None and bool(query.reached.any()):
            classes[query.reached] = self.states.likeliest(query.indices[query.reached])
        return classes

    def learn(self, nodes: Int[Tensor, " b"], classes: Int[Tensor, " b"]) -> None:
        self.labels[nodes] = classes
        if self.explorer is not None:
            self.explorer.reach.add(nodes)
        if self.states is not None:
            self.states.learn(nodes, classes)

    def unreached(self) -> int:
        """How many nodes no label had reached when the last choice was made, or before the first."""
        return 0 if self.explorer is None else self.explorer.unreached

    def set_steps(self, steps: int) -> None:
        self.steps = steps
        if self.explorer is not None:
            self.explorer.set_steps(steps)
        if self.states is not None:
            self.states.set_steps(steps)


def first_lowest(ranking: Float[Tensor, " n"], count: int) -> Int[Tensor, " b"]:
    """Where the `count` lowest stand, the lowest first, of equal ones the first."""
    if count == 1:
        return ranking.argmin(dim=0, keepdim=True)  # the first of equal ones, by its documentation
    if count == 0:
        return ranking.argsort()[:0]
    places = topk_lowest(ranking[None], count)[0].sort().values
    return places[ranking[places].argsort(stable=True)]


class Explorer:
    """Finds the unreached of the largest influence. Cost: O(n log n) once, then next to nothing a choice."""

    def __init__(self, graph: NeighborGraph, labels: Int[Tensor, " n"], steps: int) -> None:
        self.reach = Reach(graph, steps)
        self.reach.add((labels != UNLABELED).nonzero()[:, 0])
        self.reach.catch_up()
        self.influence = in_units(graph.wide_influence)
        # Stable: of equal influence, the lower index first.
        self.by_influence = self.influence.argsort(descending=True, stable=True)
        self.unreached = self.reach.unreached
        self.start_over()

    def set_steps(self, steps: int) -> None:
        """With fewer steps, nodes that were reached are not any more."""
        self.reach.set_steps(steps)
        self.start_over()

    def start_over(self) -> None:
        self.passed = 0  # whoever stands before this place is reached
        self.over = False

    def choose(self, count: int) -> Int[Tensor, " b"]:
        """At most `count` nodes that no label reaches, the largest influence first."""
        if self.over:
            self.unreached = 0
            return self.by_influence[:0]
        self.reach.catch_up()
        nodes, self.unreached = self.look(count), self.reach.unreached
        self.over = len(nodes) < count  # no more after these, and nobody needs to be asked again
        return nodes

    def look(self, count: int) -> Int[Tensor, " b"]:
        """The same among the rows of this rank."""
        chosen = [self.by_influence[:0]]
        missing, place = count, self.passed
        while missing > 0 and place < len(self.by_influence):
            rows = self.by_influence[place : place + max(GLANCE, count)]
            rows = rows[~self.reach.reached(rows)][:missing]
            place += max(GLANCE, count)
            if missing == count and len(rows) == 0:
                self.passed = place
            chosen.append(rows)
            missing -= len(rows)
        return torch.cat(chosen)
