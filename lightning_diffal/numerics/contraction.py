"""Fewer dimensions, with distances that are never larger than before."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.numerics.threads import run_parallel

# Points projected at a time, in float64.
PART = 1024
ITERATIONS = 2


def leading_directions(sample: Float[Tensor, "s d"], number: int, generator: torch.Generator) -> Float[Tensor, "d m"]:
    """An orthonormal basis in float64, about the leading principal directions of centered points, strongest first.

    Cost: O(s d m). Reference: Halko, Martinsson & Tropp, Finding Structure with Randomness, 2011.
    """
    basis = torch.randn(sample.shape[1], number, generator=generator, device=sample.device)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(sample.T @ (sample @ basis)).Q
    # Rotated to the principal directions of the projected sample.
    strength = torch.linalg.eigh((sample @ basis).T @ (sample @ basis))
    leading: Tensor = torch.linalg.qr((basis @ strength.eigenvectors.flip(1)).double()).Q
    return leading


def contract(points: Float[Tensor, "n d"], basis: Float[Tensor, "d m"]) -> Float[Tensor, "n m_plus_1"]:
    """The coordinates Px of each point in an orthonormal basis, and the norm r of what is left of it.

    |x - y|² ≥ |Px - Py|² + (r_x - r_y)²: distances of the result are lower bounds. Computed in the type of the basis:
    in float64 all is rounded once; float32 is faster, and the bounds hold roughly.
    """
    result = points.new_empty(len(points), basis.shape[1] + 1)

    def project(start: int) -> None:
        wide, out = points[start : start + PART].to(basis.dtype, copy=True), result[start : start + PART]
        projected = wide @ basis
        out[:, :-1] = projected
        out[:, -1] = (wide.square_().sum(dim=1) - projected.square_().sum(dim=1)).clamp_min_(0).sqrt_()

    run_parallel(project, range(0, len(points), PART), points.device)
    return result
