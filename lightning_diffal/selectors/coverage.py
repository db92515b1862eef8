"""Ask about the points that cover most of what the diffused prediction is unsure of."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_positive, check_share, skip_type_check
from lightning_diffal.diffusion.coverage import GreedyCoverage
from lightning_diffal.diffusion.graph_labels import class_factors
from lightning_diffal.diffusion.lazy_walk import LazyWalk
from lightning_diffal.diffusion.leave_one_out import points_to_leave_out
from lightning_diffal.diffusion.left_out_walks import predicted_right
from lightning_diffal.diffusion.walk import step
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors, symmetrized
from lightning_diffal.graph.reorder import locality_order, renumbered
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.tiles import tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import BatchSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot

# Classes diffused together.
COLUMNS = 16
# Labeled points that are left out to find the exponent: it is off by 0.1 at most, about.
LEFT_OUT = 128
# A smaller 1 - (q₁ - q₂) is rounding error, and none.
CERTAIN = 2.0**-40


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class CoverageSelector(BatchSelector):
    """Ask about the points whose random walks cover most of the points the diffused prediction is unsure of.

    With n points of which m are labeled, B asked for, and K neighbors in the graph of the fixed features:

    * The walk: P = D⁻¹(W̄ + ½ d̄ I) with W̄ = (W + Wᵀ)/2, d̄ its mean row sum, D the row sums. S = P^t with
      t = max(1, log_K(n / (m + B))), whole powers mixed for fractions: labels reach less far the more there are.
    * The uncertainty: q are the model's probabilities after one step of W with rows that sum to 1, labeled points held
      at their labels. U_i = (1 - (q₁ - q₂))^p, with the two largest of q_i; 0 where labeled. Without logits, 1.
    * The exponent: p = 2 (a - b) / (1 - b), not below 0, where a is the `leave_one_out` accuracy of the labels that
      diffuse on this graph, and b the share of the largest class. Where labels do not follow the features, nothing near
      an uncertain point is learned from it, and all points count the same.
    * The balance: U_i is multiplied by Σ_c q_ic / n_c^g, with n_c = Σ_j q_jc the predicted sizes of the classes and
      g = 1 - e^H / c, where H is the entropy of n_c / n and so e^H the number of classes that would be as diverse. With
      equally large classes g is 0; the more they differ, the more do points of rare ones count.
    * The objective: F(L) = Σ_i U_i max_{l∈L} (1 - exp(-λ S_il)) with λ = n / (m + B), over the labeled and chosen
      points L: how well each point is covered by the best of them. It is monotone and submodular: choosing the largest
      gain each time, as here, reaches 1 - 1/e of the best.

    The scores are these gains, negative; ties go to the lower index. A first query without labels or model is no
    special case.

    Args:
        neighbors: K. By default ⌈2 ln n⌉.
        rate: A factor of λ. Larger: a label covers more of the points around it.
        reach: A factor of log_K(n / (m + B)).
        power: The exponent p of the uncertainty, instead of that by leave-one-out accuracy; 0 for coverage alone.
        class_balance: The exponent g, instead of that by the predicted sizes: with 1 all classes count the same however
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
        steps = max(1.0, self.reach * math.log(per_label) / math.log(max(2, int(graph.degree.amax()))))
        with timer.stage("walk"):
            # In float64, since equal walks have to stay equal: half the sum of two float32 numbers is rounded. And in
            # an order in which neighbors are near in memory.
            near = symmetrized(NeighborGraph(graph.crow, graph.col, graph.weight.to(wide_dtype(graph.device))))
            order, _ = locality_order(near)
            near, place = renumbered(near, order), order.argsort()
            power = self.power
            if power is None and snapshot.logits is not None:
                left_out = place[points_to_leave_out(snapshot.labels, LEFT_OUT)]
                power = trusted_power(near, snapshot.labels[order], left_out)
            walk = LazyWalk(near, steps)
            del near  # as large as all that is needed from here on
            weight = self.weight(graph, snapshot, power)
            coverage = GreedyCoverage(walk, weight[order], place[snapshot.labeled], self.rate * per_label, order)
        chosen, gains = torch.empty_like(snapshot.unlabeled[:size]), torch.empty_like(weight[:size])
        for number in timer.track_stage("query", range(size)):
            node, gains[number] = coverage.choose_next()
            chosen[number] = order[node]
        return Query.of(chosen, -gains)

    def weight(self, graph: NeighborGraph, snapshot: Snapshot, power: float | int | None) -> Float[Tensor, " n"]:
        """U, with all its factors."""
        if snapshot.logits is None or power is None:
            return torch.ones_like(snapshot.labels, dtype=wide_dtype(graph.device))
        uncertainty, class_size = diffused_prediction(graph, snapshot.labels, snapshot.logits)
        uncertainty.pow_(power)
        balance = imbalance(class_size) if self.class_balance is None else self.class_balance
        return uncertainty * rarity(graph, snapshot.labels, snapshot.logits, class_factors(class_size, balance))


def trusted_power(graph: NeighborGraph, labels: Int[Tensor, " n"], left_out: Int[Tensor, " s"]) -> float:
    """2, the best exponent on MNIST and CIFAR-10, as far as labels that diffuse on this graph are right.

    2 (a - b) / (1 - b) with the accuracy a at the points that are left out, and the share b of their largest class, as
    of a guess.

    Args:
        graph: Symmetric.
    """
    if len(left_out) == 0:
        return 0.0
    accuracy = float(predicted_right(graph, labels, left_out).double().mean())
    guess = float(labels[left_out].long().bincount().amax()) / len(left_out)
    return 2 * max(0.0, accuracy - guess) / (1 - guess) if guess < 1 else 0.0


def diffused_prediction(
    graph: NeighborGraph, labels: Int[Tensor, " n"], logits: Float[Tensor, "n c"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " c"]]:
    """1 - (q₁ - q₂) and Σ_j q_jc of the probabilities q after one step over the graph, labeled nodes held.

    Cost: O(edges · c). Memory: 400 bytes a node, however many classes there are.
    """
    first = torch.zeros_like(labels, dtype=wide_dtype(labels.device))
    second, total = torch.zeros_like(first), torch.zeros_like(first)
    height = tile_height(logits.shape[1])
    for part, rows in zip(total.split(height), logits.split(height), strict=True):
        part.copy_(rows.to(total.dtype).logsumexp(dim=1))
    labeled = (labels != UNLABELED).nonzero()[:, 0]
    class_size = torch.zeros_like(first[:1]).repeat(logits.shape[1])
    for classes in torch.arange(logits.shape[1], device=labels.device).split(COLUMNS):
        mass = (logits[:, classes].to(total.dtype) - total[:, None]).exp_()
        mass[labeled] = (labels[labeled, None] == classes).to(mass.dtype)
        mass = step(graph, mass, labels)
        class_size[classes] = mass.sum(dim=0)
        both = torch.cat([first[:, None], second[:, None], mass], dim=1)
        first, second = both.topk(2, dim=1).values.unbind(dim=1)
    uncertainty = 1 - (first - second)
    return torch.where(uncertainty < CERTAIN, 0.0, uncertainty), class_size


def imbalance(class_size: Float[Tensor, " c"]) -> float:
    """1 - e^H / c with the entropy H of the classes' shares: 0 where they are equal, near 1 where one is all."""
    entropy = float(torch.special.entr(class_size / class_size.sum()).sum())
    return max(0.0, 1 - math.exp(entropy) / len(class_size))


def rarity(
    graph: NeighborGraph, labels: Int[Tensor, " n"], logits: Float[Tensor, "n c"], class_factor: Float[Tensor, " c"]
) -> Float[Tensor, " n"]:
    """Σ_c q_c f_c with q as of `diffused_prediction`. A step is linear, so the sum over classes takes it.

    Cost: O(edges + n · c).
    """
    value = torch.zeros_like(labels, dtype=class_factor.dtype)
    height = tile_height(logits.shape[1])
    for part, rows in zip(value.split(height), logits.split(height), strict=True):
        torch.mv(rows.to(value.dtype).softmax(dim=1), class_factor, out=part)
    labeled = (labels != UNLABELED).nonzero()[:, 0]
    value[labeled] = class_factor[labels[labeled].long()]
    return step(graph, value[:, None], labels)[:, 0]
