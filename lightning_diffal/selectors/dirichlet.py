"""Ask where few labels are near, or labels of different classes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_positive, skip_type_check
from lightning_diffal.diffusion.laplacian import Laplacian
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors
from lightning_diffal.graph.reorder import locality_order, renumbered
from lightning_diffal.labels import UNLABELED
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import ScoreSelector
from lightning_diffal.selectors.snapshot import Snapshot

# Labels propagated together.
COLUMNS = 16


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class DirichletSelector(ScoreSelector):
    """Ask where a Dirichlet distribution over the classes, fed by the labels nearby, varies most.

    Each label j gives votes to all points: p_j solves (L + τ) p_j = δ_j - 1/n, shifted to a minimum of 0 and scaled to
    1 at j. With α_ic = α₀ + Σ_{j of class c} p_j(i) and β = Σ_c α_c the variance Σ_c Var(c) is
    (1 - Σ_c α_c² / β²) / (1 + β): high where there are few votes, or votes for several classes.

    Args:
        neighbors: K of the graph, which is made symmetric. By default ⌈2 ln n⌉.
        tau: τ > 0: how fast votes decay with the distance.
        prior: α₀ > 0, the votes for every class where no label is near.

    Needs embeddings. Cost: `build_graph`, then a system by conjugate gradients for every label, O(edges) a round each:
    it grows with the labels. Memory: 100 bytes an edge and 1 KiB a point. The score is of one query;
    `LocalMaxSelector` spreads a batch.
    Reference: Miller & Murray, 2311.05501; τ and α₀ are those of their experiments.
    """

    neighbors: int | None = None
    tau: float = 0.1
    prior: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def __post_init__(self) -> None:
        check_neighbors("DirichletSelector", self.neighbors)
        check_positive("DirichletSelector", "tau", self.tau)
        check_positive("DirichletSelector", "prior", self.prior)

    def check_pool(self, num_points: int) -> None:
        check_neighbors("DirichletSelector", self.neighbors, num_points)

    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        graph = snapshot.symmetric_graph(self.neighbors, timer)
        with timer.stage("score"):
            alpha = self.prior + votes(graph, snapshot.labels, snapshot.num_classes, self.tau)
            total = alpha.sum(dim=1)
            return -(1 - alpha.square().sum(dim=1) / total.square()) / (1 + total)


def votes(graph: NeighborGraph, labels: Int[Tensor, " n"], num_classes: int, tau: float) -> Float[Tensor, "n c"]:
    """The votes Σ_{j of class c} p_j(i) of each class for every point."""
    order, _ = locality_order(graph)
    labels, laplacian = labels[order], Laplacian(renumbered(graph, order))
    total = torch.zeros_like(laplacian.degree).repeat(1, num_classes)
    for sources in (labels != UNLABELED).nonzero()[:, 0].split(COLUMNS):
        column = torch.arange(len(sources), device=labels.device)
        right = torch.zeros_like(laplacian.degree).repeat(1, len(sources))
        right[sources, column] = 1
        # The -1/n only shifts the solution by a constant, which subtracting the minimum removes.
        reach = laplacian.solve(right, tau)
        reach -= reach.amin(dim=0)
        of_class = torch.nn.functional.one_hot(labels[sources].long(), num_classes).to(reach.dtype)
        total += (reach / reach[sources, column]) @ of_class
    return torch.empty_like(total).index_copy_(0, order, total)
