"""Principal components, to reduce features of hundreds or thousands of dimensions."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.numerics.precision import ldexp, max_exponent, wide_dtype
from lightning_diffal.numerics.tiles import tile_height

# Larger covariances are not decomposed as a whole, which would cost 10 d³: subspace iteration costs O(n d) a direction.
EXACT_SIZE = 4096
# Of the subspace iteration: directions beside those asked for, and passes over the data.
EXTRA_DIRECTIONS = 32
ITERATIONS = 12
TILE_ENTRIES = 2**22


def principal_components(points: Float[Tensor, "n d"], dimensions: int) -> Float[Tensor, "n f"]:
    """The points around their mean in the coordinates of their leading principal directions, f = min(dimensions, d).

    (x - μ) V, V the eigenvectors of the covariance with the largest eigenvalues, largest first, each with the sign that
    makes its largest entry positive. Where n < f, further coordinates are 0. In float64 on the device of the points,
    whatever their type; the result is of their type, at least float32, and depends on no random number.

    Where both n and d exceed 4,096, V is found by subspace iteration with 32 extra directions from a fixed start: of
    directions with nearly equal variance it may choose others than an exact decomposition.

    Cost: O(n d m + m³) with m = min(n, d); by subspace iteration O(n d f). Memory: m² and a few tiles.
    Reference: Halko, Martinsson & Tropp, Finding structure with randomness, 0909.4061, Algorithm 4.4.
    """
    wide, size = wide_dtype(points.device), min(dimensions, points.shape[1])
    exponent = max_exponent(points.to(torch.promote_types(points.dtype, torch.float32)))
    height = tile_height(points.shape[1], TILE_ENTRIES)
    tiles = points.split(height)
    total = torch.zeros(points.shape[1], dtype=wide, device=points.device)
    for rows in tiles:
        total += ldexp(rows.to(wide), -exponent).sum(dim=0)
    mean = total / len(points)

    def centered(rows: Float[Tensor, "t d"]) -> Float[Tensor, "t d"]:
        return ldexp(rows.to(wide), -exponent) - mean  # below 2 in absolute value, so that no square overflows

    def apply_covariance(directions: Float[Tensor, "d m"]) -> Float[Tensor, "d m"]:
        product = torch.zeros_like(directions)
        for rows in tiles:
            part = centered(rows)
            product += part.T @ (part @ directions)
        return product

    if points.shape[1] <= min(EXACT_SIZE, len(points)):
        covariance = torch.zeros(len(mean), len(mean), dtype=wide, device=points.device)
        for rows in tiles:
            part = centered(rows)
            covariance.addmm_(part.T, part)
        directions = leading_eigenvectors(covariance, size)
    elif len(points) <= EXACT_SIZE:
        # Of X Xᵀ, which has the same eigenvalues and is smaller.
        part = torch.cat([centered(rows) for rows in tiles])
        directions = orthonormal(part.T @ leading_eigenvectors(part @ part.T, min(size, len(points))))
    else:
        # Any start does that is not orthogonal to a leading direction; this one is the same on all devices.
        start = torch.randn(len(mean), size + EXTRA_DIRECTIONS, generator=torch.Generator().manual_seed(0))
        directions = orthonormal(start.to(mean))
        for _ in range(ITERATIONS):
            directions = orthonormal(apply_covariance(directions))
        directions = directions @ leading_eigenvectors(directions.T @ apply_covariance(directions), size)
    directions = with_fixed_sign(directions)
    reduced = torch.zeros(len(points), size, dtype=torch.promote_types(points.dtype, torch.float32), device=mean.device)
    for rows, part in zip(tiles, reduced.split(height), strict=True):
        part[:, : directions.shape[1]] = ldexp(centered(rows) @ directions, exponent)
    return reduced


def leading_eigenvectors(matrix: Float[Tensor, "m m"], count: int) -> Float[Tensor, "m f"]:
    """Eigenvectors of a symmetric matrix with the largest eigenvalues, largest first."""
    # Decomposed on the CPU: the libraries of GPUs return other bases.
    vectors: Tensor = torch.linalg.eigh(matrix.cpu()).eigenvectors
    return vectors.flip(1)[:, :count].to(matrix.device)


def orthonormal(directions: Float[Tensor, "d m"]) -> Float[Tensor, "d m"]:
    """An orthonormal basis; where directions are 0 or dependent, any that completes it."""
    basis: Tensor = torch.linalg.qr(directions).Q
    return basis


def with_fixed_sign(directions: Float[Tensor, "d m"]) -> Float[Tensor, "d m"]:
    """Each direction or its opposite, so that its (first) entry of the largest absolute value is positive."""
    largest = directions.abs().argmax(dim=0, keepdim=True)
    return directions * directions.gather(0, largest).sign()
