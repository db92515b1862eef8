"""T steps of the clamped walk: the class signal χ of every node."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.diffusion.walk import diffused_mass, signal
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_graph
from lightning_diffal.labels import check_labels, check_probabilities


@torch.no_grad()
@skip_type_check
def diffuse(
    graph: NeighborGraph,
    labels: Int[Tensor, " n"],
    num_classes: int,
    *,
    steps: int,
    soft_labels: Float[Tensor, "n c"] | None = None,
) -> Float[Tensor, "n c"]:
    """Let the known labels walk `steps` steps over the graph.

    χ ← M χ with M = D⁻¹W, then every labeled row is set back to +1 for its class and -1 for the others. Row i, column c
    is in [-1, 1]: near ±1 the class is clear, near 0 two classes are equally strong or no label has come this far. With
    many steps χ becomes the harmonic solution of L_uu χ_u = W_ul χ_l.

    Args:
        labels: Class of each node, -1 where unknown.
        steps: T of the paper. More steps reach further and discriminate less.
        soft_labels: Probabilities f(x) of the current model. Unlabeled rows then start at 2 f(x) - 1, not at 0.

    Cost: O(steps · edges · classes) time, 16 (c + 1) bytes a node; sums are taken in float64.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning, section 4 and appendix B.2.
    """
    check_graph("diffuse", graph)
    check_labels("diffuse", labels, graph.num_nodes, num_classes, graph.device)
    check_count("diffuse", "steps", steps)
    if soft_labels is not None:
        check_probabilities("diffuse", "soft_labels", soft_labels, graph.num_nodes, num_classes, graph.device)
    return signal(diffused_mass(graph, labels.long(), num_classes, steps, soft_labels)).to(graph.weight.dtype)


def default_steps(graph: NeighborGraph) -> int:
    """T = max(1, round(log_K n)): K steps from every node, T times over, would see the whole pool once.

    K is the mean out-degree, the number of neighbors unless the graph was symmetrized.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning, section 4.4.
    """
    degree = max(2.0, len(graph.col) / graph.num_nodes)
    return max(1, round(math.log(graph.num_nodes) / math.log(degree)))
