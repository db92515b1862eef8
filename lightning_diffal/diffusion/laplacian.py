"""Equations of the graph Laplacian L = D - W, solved by conjugate gradients."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.sparse import csr

# Of the residual relative to the right side, where the diagonal is scaled to ones.
TOLERANCE = 1e-6
MAX_ITERATIONS = 2000


class Laplacian:
    """L = D - W of a graph with symmetric weights, or with γ_i W_ij γ_j for weights. Sums are in float64."""

    def __init__(self, graph: NeighborGraph, gamma: Float[Tensor, " n"] | None = None) -> None:
        # The sparse library uses 32-bit indices where it can, and would convert them for every product.
        dtype = torch.int32 if len(graph.col) < 2**31 else torch.int64
        self.crow, self.row, self.col = graph.crow.to(dtype), graph.source, graph.col.to(dtype)
        self.weight = graph.weight.to(wide_dtype(graph.device))
        if gamma is not None:
            self.weight = self.scaled_weight(gamma)
        self.degree = self.weighted_sum(self.weight.new_ones(graph.num_nodes, 1))

    def scaled_weight(self, factor: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
        """f_i W_ij f_j."""
        return self.weight * factor.index_select(0, self.row) * factor.index_select(0, self.col)

    def weighted_sum(self, values: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        """W u."""
        product: Tensor = csr(self.crow, self.col, self.weight, len(self.crow) - 1) @ values
        return product

    def solve(
        self, right: Float[Tensor, "n w"], shift: float, free: Float[Tensor, "n 1"] | None = None
    ) -> Float[Tensor, "n w"]:
        """U with (L + shift) u = right where `free` is 1, and 0 where it is 0; the smallest if there are several."""
        scale = (self.degree + shift).rsqrt()
        if free is not None:
            scale = free * scale
        # With S = (D + shift)^½ and u = S⁻¹ v the equation is (1 - S⁻¹ W S⁻¹) v = S⁻¹ right: the diagonal is all ones.
        matrix = csr(self.crow, self.col, self.scaled_weight(scale[:, 0]), len(scale))
        return scale * conjugate_gradients(matrix, scale * right)


def conjugate_gradients(
    matrix: Tensor, right: Float[Tensor, "n w"], max_iterations: int = MAX_ITERATIONS
) -> Float[Tensor, "n w"]:
    """V with v - matrix v = right for each column, where the eigenvalues of the sparse `matrix` are at most 1.

    Warns if the residual of a column is still too large after `max_iterations`, or not a number.

    Cost: one product an iteration; iterations grow with the square root of the condition number. Memory: six times
    `right`.
    """
    solution, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    along, product = torch.empty_like(right), torch.empty_like(right)
    energy = torch.linalg.vector_norm(right, dim=0).square()
    start, limit = energy, TOLERANCE**2 * energy
    iterations = 0
    while iterations < max_iterations and bool((running := energy > limit).any()):
        iterations += 1
        torch.addmm(direction, matrix, direction, alpha=-1, out=along)
        # A column that has converged is not updated: its energy may have underflowed to 0 / 0.
        step = torch.where(running, energy / torch.mul(direction, along, out=product).sum(dim=0), 0.0)
        solution.addcmul_(step, direction)
        residual.addcmul_(step, along, value=-1)
        before, energy = energy, torch.linalg.vector_norm(residual, dim=0).square()
        torch.addcmul(residual, torch.where(running, energy / before, 0.0), direction, out=direction)
    if not bool((energy <= limit).all()):
        residual_norm = float((energy / start).sqrt().nan_to_num(float("inf"), float("inf"))[~(energy <= limit)].amax())
        warnings.warn(
            f"Conjugate gradients stopped after {iterations} iterations with a relative residual of "
            f"{residual_norm:.1e}, where {TOLERANCE:.0e} is converged. The scores of the graph may be inexact.",
            stacklevel=2,
        )
    return solution
