"""The state that walks over the graph: for each node the mass of every class, and the total.

The paper's signal is ±1 at labels and 0 elsewhere. Carried as one-hot mass h_c with its total r = Σ_c h_c, nothing
cancels: the signal is χ_c = 2 h_c - r, and a node that no label has reached is exactly one with r = 0. The total is
a column of its own, the last, so that it takes the same steps as the classes.

A class without a label has no mass, so that only labeled classes need a column. `classes` names the class of
each column but the last; one of class -1 is empty, for a class that may get its first label later.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype


def initial_mass(
    labels: Int[Tensor, " n"], classes: Int[Tensor, " c"], soft_labels: Float[Tensor, "n all"] | None
) -> Float[Tensor, "n w"]:
    """One for each labeled node at its class; elsewhere 0, or the soft labels. Columns: `classes`, then total."""
    mass = torch.zeros(len(labels), len(classes) + 1, dtype=wide_dtype(labels.device), device=labels.device)
    if soft_labels is not None:
        mass[:, :-1] = soft_labels[:, classes]
        mass[:, -1] = 1
    labeled = (labels != UNLABELED).nonzero()[:, 0]
    mass[labeled] = label_mass(labels[labeled], classes)
    return mass


def label_mass(labels: Int[Tensor, " b"], classes: Int[Tensor, " c"]) -> Float[Tensor, "b w"]:
    """The mass of nodes with these labels: one at their class, if it is among `classes`, and one in total."""
    mass = torch.ones(len(labels), len(classes) + 1, dtype=wide_dtype(labels.device), device=labels.device)
    mass[:, :-1] = labels[:, None] == classes
    return mass


def step(graph: NeighborGraph, mass: Float[Tensor, "n w"], labels: Int[Tensor, " n"]) -> Float[Tensor, "n w"]:
    """H ← M h, after which labeled nodes have the mass they had before. Cost: O(edges · w)."""
    after: Tensor = graph.transition @ mass
    labeled = (labels != UNLABELED).nonzero()[:, 0]
    after[labeled] = mass[labeled]
    return after


def diffused_mass(
    graph: NeighborGraph,
    labels: Int[Tensor, " n"],
    num_classes: int,
    steps: int,
    soft_labels: Float[Tensor, "n c"] | None = None,
) -> Float[Tensor, "n w"]:
    """The mass of every class after `steps` steps, and the total in the last column."""
    mass = initial_mass(labels, torch.arange(num_classes, device=labels.device), soft_labels)
    for _ in range(steps):
        mass = step(graph, mass, labels)
    return mass


def signal(mass: Float[Tensor, "b w"]) -> Float[Tensor, "b c"]:
    """χ_c = 2 h_c - r."""
    return 2 * mass[:, :-1] - mass[:, -1:]
