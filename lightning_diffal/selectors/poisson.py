"""Ask where Laplace learning with weights raised near labels has the smallest solution."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.diffusion.laplacian import Laplacian
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors
from lightning_diffal.graph.reorder import locality_order, renumbered
from lightning_diffal.labels import UNLABELED
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import ScoreSelector
from lightning_diffal.selectors.snapshot import Snapshot

# Added to γ, whose lowest value is 0; the number is the authors'.
GAMMA_FLOOR = 1e-5
# τ below this is none; the number is the authors'.
TAU_FLOOR = 1e-9


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class PoissonSelector(ScoreSelector):
    """Ask where the solution of Poisson-reweighted Laplace learning is smallest: PWLL-τ with its norm criterion.

    γ solves L γ = Σ_{j labeled} (δ_j - 1/n), shifted to be positive: large near labels. u solves (L_γ + τ) u = 0 on the
    unlabeled points with u = e_y on the labeled ones, L_γ the Laplacian of γ_i W_ij γ_j. The score is |u_i|: τ lets u
    decay with the distance from labels, so that unexplored points are the lowest. Where the graph has several
    components the equation for γ has no solution; there each component is balanced by itself.

    Args:
        neighbors: K of the graph, which is made symmetric. By default ⌈2 ln n⌉.
        tau: τ when there are as many labels as classes.
        decay: From there on τ falls with every label by the same factor, to 10⁻⁹ and then 0 after another 2c labels.

    Needs embeddings. Cost: `build_graph`, then c + 1 systems by conjugate gradients, O(edges) a round each. Memory: 100
    bytes an edge and 64 (c + 1) a point. The score is of one query; `LocalMaxSelector` spreads a batch.
    Reference: Miller & Calder, 2210.15786; the decay of τ is that of their experiments.
    """

    neighbors: int | None = None
    tau: float = 0.001
    decay: bool = True
    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def __post_init__(self) -> None:
        check_neighbors("PoissonSelector", self.neighbors)
        if not self.tau >= 0:
            raise ValueError(f"PoissonSelector(tau={self.tau!r}): a number of at least 0 is needed.")

    def check_pool(self, num_points: int) -> None:
        check_neighbors("PoissonSelector", self.neighbors, num_points)

    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        graph = snapshot.symmetric_graph(self.neighbors, timer)
        tau = self.tau
        if self.decay and tau > TAU_FLOOR:
            past = max(0, len(snapshot.labeled) - snapshot.num_classes)
            tau *= (TAU_FLOOR / tau) ** (past / (2 * snapshot.num_classes))
        with timer.stage("score"):
            return reweighted_laplace(graph, snapshot.labels, snapshot.num_classes, tau if tau > TAU_FLOOR else 0.0)


def reweighted_laplace(
    graph: NeighborGraph, labels: Int[Tensor, " n"], num_classes: int, tau: float
) -> Float[Tensor, " n"]:
    """|u_i|, where u is the solution of Poisson-reweighted Laplace learning."""
    order, component = locality_order(graph)
    graph, labels, component = renumbered(graph, order), labels[order], component[order]
    laplacian = Laplacian(graph)
    known = (labels != UNLABELED).to(laplacian.degree.dtype)
    laplacian = Laplacian(graph, poisson_weights(laplacian, component, known))
    classes = torch.arange(num_classes, device=labels.device)
    fixed = (labels[:, None] == classes).to(known.dtype)
    solution = laplacian.solve(laplacian.weighted_sum(fixed), tau, free=1 - known[:, None])
    norm = (solution + fixed).square().sum(dim=1).sqrt()
    return torch.empty_like(norm).index_copy_(0, order, norm)


def poisson_weights(
    laplacian: Laplacian, component: Int[Tensor, " n"], known: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """γ: the potential of a source at each label that drains everywhere evenly."""
    size = torch.bincount(component, minlength=len(component))
    # Counted in whole numbers, whose sum has no order.
    labels = torch.zeros_like(size).index_add_(0, component, known.long())
    drain = labels.to(known.dtype) / size.clamp_min(1)
    gamma = laplacian.solve((known - drain[component])[:, None], 0.0)[:, 0]
    return gamma - gamma.amin() + GAMMA_FLOOR
