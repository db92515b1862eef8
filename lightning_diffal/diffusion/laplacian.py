"""Equations of the graph Laplacian L = D - W, solved by conjugate gradients."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph, csr
from lightning_diffal.graph.precision import wide_dtype

# Of the residual, in the norm of the preconditioner.
TOLERANCE = 1e-6
MOST_ROUNDS = 2000


class Laplacian:
    """L = D - W of a graph with symmetric weights, optionally reweighted to γ_i W_ij γ_j. Sums are in float64."""

    def __init__(self, graph: NeighborGraph) -> None:
        wide = graph.weight.to(wide_dtype(graph.device))
        self.weights = csr(graph.crow, graph.col, wide, graph.num_nodes)
        self.gamma = torch.ones_like(wide[:1]).expand(graph.num_nodes)[:, None]
        self.degree = self.walked(torch.ones_like(self.gamma))

    def reweighted(self, gamma: Float[Tensor, " n"]) -> "Laplacian":
        other = object.__new__(Laplacian)
        other.weights, other.gamma = self.weights, gamma[:, None]
        other.degree = other.walked(torch.ones_like(other.gamma))
        return other

    def walked(self, values: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        """W u."""
        return self.gamma * (self.weights @ (self.gamma * values))

    def solve(
        self, right: Float[Tensor, "n w"], shift: float, free: Float[Tensor, "n 1"] | None = None
    ) -> Float[Tensor, "n w"]:
        """U with (L + shift) u = right where `free` is 1, and u = 0 where it is 0; the shortest one where many are."""
        free = torch.ones_like(self.degree) if free is None else free
        diagonal = self.degree + shift

        def product(u: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
            return free * (diagonal * u - self.walked(u))

        return conjugate_gradients(product, free * right, free / diagonal)


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Float[Tensor, "n w"], inverse_diagonal: Float[Tensor, "n 1"]
) -> Float[Tensor, "n w"]:
    """U with A u = right for each column, A symmetric and not negative, preconditioned by its diagonal.

    Cost: one product a round; rounds grow with the square root of the condition number. Memory: six times `right`.
    """
    solution, residual = torch.zeros_like(right), right.clone()
    ahead = inverse_diagonal * residual
    direction = ahead.clone()
    energy = (residual * ahead).sum(dim=0)
    enough = TOLERANCE**2 * energy
    for _ in range(MOST_ROUNDS):
        running = energy > enough
        if not bool(running.any()):
            break
        along = product(direction)
        # A column that has arrived stands still: its energy may have underflowed to 0 / 0.
        step = torch.where(running, energy / (direction * along).sum(dim=0), 0.0)
        solution.addcmul_(step, direction)
        residual.addcmul_(step, along, value=-1)
        ahead = inverse_diagonal * residual
        before, energy = energy, (residual * ahead).sum(dim=0)
        direction.mul_(torch.where(running, energy / before, 0.0)).add_(ahead)
    return solution


def components(graph: NeighborGraph) -> Int[Tensor, " n"]:
    """The lowest node that each node is connected with, for a graph whose edges go both ways."""
    lowest = torch.arange(graph.num_nodes, device=graph.device)
    while True:
        after = lowest.scatter_reduce(0, graph.source, lowest[graph.col], "amin")
        after = after[after]  # whoever its lowest node has found in the meantime
        if torch.equal(after, lowest):
            return lowest
        lowest = after
