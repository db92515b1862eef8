"""Ask about the points that cover most of what the diffused prediction is unsure of."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_positive, check_share, skip_type_check
from lightning_diffal.diffusion.coverage import GreedyCoverage
from lightning_diffal.diffusion.diffused_prediction import DiffusedPrediction
from lightning_diffal.diffusion.graph_against_models import RECENT, compare, skill
from lightning_diffal.diffusion.graph_labels import class_factors
from lightning_diffal.diffusion.lazy_walk import LazyWalk
from lightning_diffal.diffusion.leave_one_out import points_to_leave_out
from lightning_diffal.diffusion.left_out_walks import predicted_right
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors, symmetrized
from lightning_diffal.graph.reorder import locality_order, renumbered
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import BatchSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot

# Labeled points that are left out to find the skill of the graph: it is off by 0.1 at most, about.
LEFT_OUT = 128
# The best exponent of the uncertainty on MNIST and CIFAR-10, among ½ to 3.
POWER = 2.0


@dataclass(frozen=True)
class GraphQuality:
    """What the labels there are say of the graph."""

    skill: float
    """How much better than guessing it predicts them, from 0 to 1."""
    trust: float
    """1, or less where the models know more."""


WITHOUT_LABELS = GraphQuality(skill=0.0, trust=1.0)


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class CoverageSelector(BatchSelector):
    """Ask about the points whose random walks cover most of the points the diffused prediction is unsure of.

    With n points of which m are labeled, B asked for, and K neighbors in the graph of the fixed features:

    * The walk: P = D⁻¹(W̄ + ½ d̄ I) with W̄ = (W + Wᵀ)/2, d̄ its mean row sum, D the row sums. S = P^t with
      t = max(1, log_K(n / (m + B))), whole powers mixed for fractions: labels reach less far the more there are.
    * The uncertainty: q are the model's probabilities f after one step of M, W with rows that sum to 1, labeled points
      held at their labels. U_i = (1 - (q₁ - q₂))^p, with the two largest of q_i; 0 where labeled. Without logits, 1.
    * The exponent: p = 2 (a - b) / (1 - b), not below 0, where a is the `leave_one_out` accuracy of the labels that
      diffuse on this graph, and b the share of the largest class. Where labels do not follow the features, nothing near
      an uncertain point is learned from it, and all points count the same.
    * The balance: U_i is multiplied by Σ_c q_ic / n_c^g, with n_c = Σ_j q_jc the predicted sizes of the classes and
      g = 1 - e^H / c, where H is the entropy of n_c / n and so e^H the number of classes that would be as diverse. With
      equally large classes g is 0; the more they differ, the more do points of rare ones count.
    * The objective: F(L) = Σ_i U_i max_{l∈L} (1 - exp(-λ S_il)) with λ = n / (m + B), over the labeled and chosen
      points L: how well each point is covered by the best of them. It is monotone and submodular: choosing the largest
      gain each time, as here, reaches 1 - 1/e of the best.
    * Where models know more than the graph: both are compared on the points asked last, by what models said before
      these were labeled. While the graph is not surely worse (by a standard error), w = 1; where it is by 0.1 more,
      w = 0. The walk has w t steps, q is w M f + (1 - w) f, p and g become w p + (1 - w) 2 and w g. So the choice goes
      over to that of `MarginSelector`, which knows no graph.

    The scores are these gains, negative; ties go to the lower index. A first query without labels or model is no
    special case.

    Args:
        neighbors: K. By default ⌈2 ln n⌉.
        rate: A factor of λ. Larger: a label covers more of the points around it.
        reach: A factor of log_K(n / (m + B)).
        power: The exponent p of the uncertainty, whatever the accuracies; 0 for coverage alone.
        class_balance: The exponent g, whatever the predicted sizes: with 1 all classes count the same however
            rare they are, with 0 all points do whatever their class.

    Needs features, or embeddings where there are none, and logits if there are any. Cost: `build_graph`, O(t · edges),
    then the columns of S of some candidates, about n / (m + B) entries each: the fewer the more labels there are, and
    nearly all of them where there are no labels. Memory: 100 bytes an edge, 500 a point and 500 MB.
    """

    neighbors: int | None = None
    rate: float = 1.0
    reach: float = 1.0
    power: float | None = None
    class_balance: float | None = None
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def __post_init__(self) -> None:
        check_neighbors("CoverageSelector", self.neighbors)
        check_positive("CoverageSelector", "rate", self.rate)
        check_positive("CoverageSelector", "reach", self.reach)
        if self.power not in (None, 0):
            check_positive("CoverageSelector", "power", self.power)
        if self.class_balance is not None:
            check_share("CoverageSelector", "class_balance", self.class_balance)

    def check_pool(self, num_points: int) -> None:
        check_neighbors("CoverageSelector", self.neighbors, num_points)

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        graph = snapshot.feature_graph(self.neighbors, timer)
        per_label = graph.num_nodes / (len(snapshot.labeled) + size)
        # Not less than 2 neighbors: the logarithm to the base of 1 is infinite.
        reach = max(1.0, self.reach * math.log(per_label) / math.log(max(2, int(graph.degree.amax()))))
        with timer.stage("walk"):
            # In float64, since equal walks have to stay equal: half the sum of two float32 numbers is rounded. And in
            # an order in which neighbors are near in memory.
            near = symmetrized(NeighborGraph(graph.crow, graph.col, graph.weight.to(wide_dtype(graph.device))))
            order, _ = locality_order(near)
            near, place = renumbered(near, order), order.argsort()
            quality = graph_quality(near, place, snapshot)
            walk = LazyWalk(near, quality.trust * reach)
            del near  # as large as all that is needed from here on
            weight = self.weight(graph, snapshot, quality)
            coverage = GreedyCoverage(walk, weight[order], place[snapshot.labeled], self.rate * per_label, order)
        chosen, gains = torch.empty_like(snapshot.unlabeled[:size]), torch.empty_like(weight[:size])
        for number in timer.track_stage("query", range(size)):
            node, gains[number] = coverage.choose_next()
            chosen[number] = order[node]
        return Query.of(chosen, -gains)

    def weight(self, graph: NeighborGraph, snapshot: Snapshot, quality: GraphQuality) -> Float[Tensor, " n"]:
        """U, with all its factors."""
        if snapshot.logits is None:
            return torch.ones_like(snapshot.labels, dtype=wide_dtype(graph.device))
        trust = quality.trust
        prediction = DiffusedPrediction(graph, snapshot.labels, snapshot.logits, trust)
        uncertainty, class_size = prediction.uncertainty()
        uncertainty.pow_(POWER * (trust * quality.skill + 1 - trust) if self.power is None else self.power)
        balance = trust * imbalance(class_size) if self.class_balance is None else self.class_balance
        return uncertainty * prediction.expectation(class_factors(class_size, balance))


def graph_quality(near: NeighborGraph, place: Int[Tensor, " n"], snapshot: Snapshot) -> GraphQuality:
    """How well the graph predicts labels from the others, and whether the models of earlier rounds did better.

    Args:
        near: The symmetric graph.
        place: The number of each point in it.
    """
    labels, earlier = snapshot.labels, snapshot.earlier
    sample = rows = points_to_leave_out(labels, LEFT_OUT)
    if len(sample) == 0 or snapshot.logits is None:
        return WITHOUT_LABELS
    if earlier is not None:
        rows = torch.cat([sample, earlier.rows[-RECENT:]]).unique()
    right = predicted_right(near, labels[place.argsort()], place[rows])
    accuracy = float(right[torch.isin(rows, sample)].double().mean())
    graph_skill = skill(accuracy, float(labels[sample].long().bincount().amax()) / len(sample))
    trust = 1.0 if earlier is None else compare(rows, right, labels, earlier).trust(tolerated=0.0)
    return GraphQuality(graph_skill, trust)


def imbalance(class_size: Float[Tensor, " c"]) -> float:
    """1 - e^H / c with the entropy H of the classes' shares: 0 where they are equal, near 1 where one is all."""
    entropy = float(torch.special.entr(class_size / class_size.sum()).sum())
    return max(0.0, 1 - math.exp(entropy) / len(class_size))
