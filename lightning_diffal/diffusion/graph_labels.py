"""The labels that diffuse from labeled points to all others, and how sure they are."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, check_share, skip_type_check
from lightning_diffal.diffusion.walk import diffused_mass
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_graph
from lightning_diffal.labels import UNLABELED, check_labels

# The steps of the trials that the defaults were found in. Label diffusion for prediction needs to reach all points;
# the paper's T, for choosing points, is far smaller.
STEPS = 40


@dataclass(frozen=True, eq=False)
class GraphLabels:
    """A class for every point of the graph."""

    labels: Int[Tensor, " n"]
    """The strongest class; -1 where no label has reached."""
    confidence: Float[Tensor, " n"]
    """The share of the strongest class minus that of the second, in [0, 1]: 1 at labeled points, 0 where unreached."""


@torch.no_grad()
@skip_type_check
def graph_labels(
    graph: NeighborGraph,
    labels: Int[Tensor, " n"],
    num_classes: int,
    *,
    steps: int = STEPS,
    class_balance: float = 0.0,
) -> GraphLabels:
    """The class that each point gets when the known labels diffuse over the symmetric graph.

    h ← D⁻¹W̄ h with W̄ = (W + Wᵀ)/2, after which every labeled row is set back to one for its class; other rows start
    at 0. The class is argmax_c h_c, the confidence h₍₁₎ - h₍₂₎ of the two strongest over Σ_c h_c.

    Args:
        labels: Class of each node, -1 where unknown.
        steps: T. In many steps h becomes the harmonic solution, that of Laplace learning.
        class_balance: Divide h_c by this power of Σ_i h_ic, the mass of the class on the whole graph: few labels at
            hubs win too many points otherwise. 1 makes all classes equally large, 0 changes nothing.

    Cost: O(steps · edges · classes) time, 16 (c + 1) bytes a node; sums are taken in float64.
    Reference: Zhu, Ghahramani & Lafferty, Semi-Supervised Learning Using Gaussian Fields and Harmonic Functions, 2003;
    section 4 has the class mass normalization.
    """
    check_diffusion("graph_labels", graph, labels, num_classes, steps, class_balance)
    mass = diffused_mass(graph.symmetric, labels.long(), num_classes, steps)
    return strongest_class(with_class_factors(mass, class_factors(mass[:, :-1].sum(dim=0), class_balance)))


@skip_type_check
def check_diffusion(
    caller: str, graph: NeighborGraph, labels: Tensor, num_classes: int, steps: int, class_balance: float
) -> None:
    check_graph(caller, graph)
    check_labels(caller, labels, graph.num_nodes, num_classes, graph.device)
    check_count(caller, "steps", steps)
    check_share(caller, "class_balance", class_balance)


def class_factors(class_mass: Float[Tensor, " c"], class_balance: float) -> Float[Tensor, " c"]:
    """(Σ_i h_ic)^(-class_balance): what the mass of each class is multiplied by; 1 for a class without mass."""
    return torch.where(class_mass > 0, class_mass, 1.0).pow(-class_balance)


def with_class_factors(mass: Float[Tensor, "b w"], factors: Float[Tensor, " c"]) -> Float[Tensor, "b w"]:
    """The mass of each class times its factor, and the new total in the last column."""
    by_class = mass[:, :-1] * factors
    return torch.cat([by_class, by_class.sum(dim=1, keepdim=True)], dim=1)


def strongest_class(mass: Float[Tensor, "b w"]) -> GraphLabels:
    """The class with the most mass, the lower one of equals, and its margin. The last column is the total."""
    by_class, total = mass[:, :-1], mass[:, -1]
    strongest = by_class.argmax(dim=1)
    first = by_class.amax(dim=1)
    second = by_class.scatter(1, strongest[:, None], 0.0).amax(dim=1)
    reached = total > 0
    return GraphLabels(torch.where(reached, strongest, UNLABELED), torch.where(reached, (first - second) / total, 0.0))
