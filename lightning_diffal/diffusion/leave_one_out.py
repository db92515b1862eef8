"""How well labels diffuse: each labeled point predicted from all the others."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.diffusion.graph_labels import (
    STEPS,
    check_diffusion,
    class_factors,
    strongest_class,
    with_class_factors,
)
from lightning_diffal.diffusion.walk import initial_mass, step
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.graph.reorder import locality_order, renumbered
from lightning_diffal.graph.row_block import RowBlock
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.sampling import sample_without_replacement

# Walks that are followed at a time. Of as many float64 the rows of a product stay in the cache.
WALKS = 32
# Classes that are diffused at a time.
CLASSES = 128
# Mass below this share of the mass with the point's own label is a rounding error of their difference.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Labeled points, each predicted as if it had no label."""

    rows: Int[Tensor, " s"]
    """The points: all labeled ones or a sample, in rising order, or those asked for."""
    labels: Int[Tensor, " s"]
    """Their labels."""
    predicted: Int[Tensor, " s"]
    """The class that diffuses to them from the other labels; -1 where none of those reaches."""
    confidence: Float[Tensor, " s"]
    """As of `graph_labels`."""
    support: Float[Tensor, " s"]
    """What diffuses of a point's own class, as a share of what diffuses of the strongest; 1 where no label reaches."""

    @property
    def correct(self) -> Bool[Tensor, " s"]:
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """The share that is predicted right; 0 without any labeled point."""
        return float(self.correct.double().mean()) if len(self.rows) else 0.0


@torch.no_grad()
@skip_type_check
def leave_one_out(
    graph: NeighborGraph,
    labels: Int[Tensor, " n"],
    num_classes: int,
    *,
    steps: int = STEPS,
    max_points: int = 256,
    points: Int[Tensor, " s"] | None = None,
    keep_class_size: bool = False,
    class_balance: float = 0.0,
    generator: torch.Generator | None = None,
) -> LeaveOneOut:
    """Predict labeled points from the labels of all others, by the diffusion of `graph_labels`.

    The result is that of diffusing once for each point without its label, for any number of steps, but is computed from
    one diffusion with all labels. A walk from point l that treats l as unlabeled is the walk that ends at any label,
    started again whenever it ends at l itself: with G_t(c) = [P h⁽ᵗ⁻¹⁾]_lc the probability to end in class c within t
    steps, r_t that to be back at l for the first time in step t, and ν_0 = 1, ν_t = Σ_s r_s ν_{t-s},

        h_c = Σ_t ν_{T-t} (G_t(c) - [c = y_l] Σ_{s≤t} r_s).

    In the limit of many steps it is (Σ_{k≠l, y_k=c} A_lk) / (1 - A_ll), A_lk the probability to end at k.

    Args:
        labels: Class of each node, -1 where unknown.
        max_points: With more labeled points, so many of them are drawn and predicted, still from all labels. The
            standard error of the accuracy is then at most 0.5 / √max_points.
        points: These labeled points instead.
        keep_class_size: Multiply the mass of the point's own class, which has one of its m_c labels less than before,
            by 1 + 1 / (m_c - 1)². With two labels a class all others would be twice as strong, and the accuracy far
            lower than with all labels: 19% where it is 42% (docs/design.md).
        class_balance: As of `graph_labels`; the mass of the classes is that of the diffusion with all labels.
        generator: Draws them; by default one seeded with 0.

    Cost: O(steps · edges · (classes + points / 2)) time; W̄ is symmetric, so that half of the steps give all r_t.
    Memory: 3 KiB a node, however many classes there are. 256 points of 50,000 with 15 neighbors take 5 s of one core.
    """
    check_diffusion("leave_one_out", graph, labels, num_classes, steps, class_balance)
    check_count("leave_one_out", "max_points", max_points)
    if points is None:
        points = points_to_leave_out(labels, max_points, generator)
    # Products are three times as fast where neighbors are near in memory, too.
    order, _ = locality_order(graph.symmetric)
    graph, labels, rows = renumbered(graph.symmetric, order), labels.long()[order], order.argsort()[points]
    own = labels[rows]
    returns = first_returns(graph, labels, rows, steps)  # (s, T)
    restarts = renewals(returns)
    block = RowBlock(graph, rows, [len(rows)])
    found, class_mass = returns.new_zeros(len(rows), num_classes + 1), returns.new_zeros(num_classes)
    for classes in labels[labels != UNLABELED].unique().split(CLASSES):  # others have no mass
        mass = initial_mass(labels, classes, None)
        for t in range(steps):
            found[:, classes] += restarts[:, steps - 1 - t, None] * block.times(mass, 0)[:, :-1]
            mass = step(graph, mass, labels)
        class_mass[classes] = mass[:, :-1].sum(dim=0)
    to_itself = (restarts.flip(1) * returns.cumsum(1)).sum(dim=1)
    # The class of the point itself has what the walk would bring back to it. The total is that of the new masses.
    others = found.gather(1, own[:, None])[:, 0] - to_itself
    others = torch.where(others > ROUNDING * to_itself, others, 0.0)
    if keep_class_size:
        size = labels[labels != UNLABELED].bincount(minlength=num_classes)[own]
        others += others / (size - 1).clamp(min=1).square()
    found.scatter_(1, own[:, None], others[:, None])
    found = with_class_factors(found, class_factors(class_mass, class_balance))
    predicted = strongest_class(found)
    strongest = found[:, :-1].amax(dim=1)
    support = torch.where(strongest > 0, found.gather(1, own[:, None])[:, 0] / strongest, 1.0)
    return LeaveOneOut(points, own, predicted.labels, predicted.confidence, support)


def points_to_leave_out(
    labels: Int[Tensor, " n"], max_points: int, generator: torch.Generator | None = None
) -> Int[Tensor, " s"]:
    """All labeled points, or a sample, in rising order."""
    points = (labels != UNLABELED).nonzero()[:, 0]
    if len(points) <= max_points:
        return points
    generator = generator or torch.Generator().manual_seed(0)
    return points[sample_without_replacement(max_points, len(points), generator, points.device)].sort().values


def first_returns(
    graph: NeighborGraph, labels: Int[Tensor, " n"], rows: Int[Tensor, " s"], steps: int
) -> Float[Tensor, "s steps"]:
    """r_t: the probability that a walk from each row, which ends at any label, ends in step t = 1 ... at that row.

    With b_t(j) the probability to go from j to l in exactly t steps, over unlabeled points alone, and d the degrees of
    the symmetric graph, d_l u(j) = d_j b(j) for the walk u from l to j. So r_{s+t} = Σ_j b_s(j) b_t(j) d_j / d_l.
    """
    dtype, degree = wide_dtype(graph.device), graph.wide_influence[:, None]
    unlabeled = (labels == UNLABELED).to(dtype)[:, None]
    returns = torch.zeros(len(rows), steps + 1, dtype=dtype, device=graph.device)
    for some in torch.arange(len(rows), device=rows.device).split(WALKS):
        walk = torch.zeros(graph.num_nodes, len(some), dtype=dtype, device=graph.device)
        walk[rows[some], torch.arange(len(some), device=rows.device)] = 1  # b_0
        for t in range(1, (steps + 1) // 2 + 1):
            after = graph.transition @ walk
            weighted = degree * after
            returns[some, 2 * t - 2] = (weighted * walk).sum(dim=0)
            after *= unlabeled  # a walk that comes to a label ends there
            returns[some, 2 * t - 1] = (weighted * after).sum(dim=0)
            walk = after
    return returns[:, :steps] / degree[rows]


def renewals(returns: Float[Tensor, "s steps"]) -> Float[Tensor, "s steps"]:
    """ν_0 ... ν_{T-1}: the probability that a walk is back where it started in step t, at the first time or again."""
    found = torch.zeros_like(returns)
    found[:, 0] = 1
    for t in range(1, returns.shape[1]):
        found[:, t] = (returns[:, :t] * found[:, :t].flip(1)).sum(dim=1)
    return found
