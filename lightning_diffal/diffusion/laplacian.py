"""Equations of the graph Laplacian L = D - W, solved by conjugate gradients."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph, csr
from lightning_diffal.numerics.precision import wide_dtype

# Of the residual, where the diagonal is scaled to ones.
TOLERANCE = 1e-6
MOST_ROUNDS = 2000


class Laplacian:
    """L = D - W of a graph with symmetric weights, or with γ_i W_ij γ_j for weights. Sums are in float64."""

    def __init__(self, graph: NeighborGraph, gamma: Float[Tensor, " n"] | None = None) -> None:
        # The matrix library counts in 32 bits where it can, and would convert the indices for every product.
        whole = torch.int32 if len(graph.col) < 2**31 else torch.int64
        self.crow, self.row, self.col = graph.crow.to(whole), graph.source, graph.col.to(whole)
        self.weight = graph.weight.to(wide_dtype(graph.device))
        if gamma is not None:
            self.weight = self.between(gamma)
        self.degree = self.walked(self.weight.new_ones(graph.num_nodes, 1))

    def between(self, factor: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
        """f_i W_ij f_j."""
        return self.weight * factor.index_select(0, self.row) * factor.index_select(0, self.col)

    def walked(self, values: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        """W u."""
        walked: Tensor = csr(self.crow, self.col, self.weight, len(self.crow) - 1) @ values
        return walked

    def solve(
        self, right: Float[Tensor, "n w"], shift: float, free: Float[Tensor, "n 1"] | None = None
    ) -> Float[Tensor, "n w"]:
        """U with (L + shift) u = right where `free` is 1, and u = 0 where it is 0; the shortest one where many are."""
        scale = (self.degree + shift).rsqrt()
        if free is not None:
            scale = free * scale
        # With S = (D + shift)^½ and u = S⁻¹ v the equation is (1 - S⁻¹ W S⁻¹) v = S⁻¹ right: the diagonal is all ones.
        walk = csr(self.crow, self.col, self.between(scale[:, 0]), len(scale))
        return scale * conjugate_gradients(walk, scale * right)


def conjugate_gradients(walk: Tensor, right: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
    """V with v - walk v = right for each column, where the eigenvalues of the sparse `walk` are at most 1.

    Cost: one product a round; rounds grow with the square root of the condition number. Memory: six times `right`.
    """
    solution, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    along, product = torch.empty_like(right), torch.empty_like(right)
    energy = torch.linalg.vector_norm(right, dim=0).square()
    enough = TOLERANCE**2 * energy
    for _ in range(MOST_ROUNDS):
        running = energy > enough
        if not bool(running.any()):
            break
        torch.addmm(direction, walk, direction, alpha=-1, out=along)
        # A column that has arrived stands still: its energy may have underflowed to 0 / 0.
        step = torch.where(running, energy / torch.mul(direction, along, out=product).sum(dim=0), 0.0)
        solution.addcmul_(step, direction)
        residual.addcmul_(step, along, value=-1)
        before, energy = energy, torch.linalg.vector_norm(residual, dim=0).square()
        torch.addcmul(residual, torch.where(running, energy / before, 0.0), direction, out=direction)
    return solution
