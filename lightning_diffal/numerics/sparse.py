"""Sparse matrices in compressed rows (CSR)."""

import warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor


def csr(crow: Int[Tensor, " r_plus_1"], col: Int[Tensor, " e"], value: Float[Tensor, " e"], width: int) -> Tensor:
    """A sparse CSR tensor (r, width)."""
    with warnings.catch_warnings():
        # torch warns once in a process that CSR is in beta; users of this library cannot act on it.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        size = (len(crow) - 1, width)
        return torch.sparse_csr_tensor(crow, col, value, size, device=value.device, check_invariants=False)


def sampled_products(
    x: Float[Tensor, "r d"], y: Float[Tensor, "n d"], size: Int[Tensor, " r"], column: Int[Tensor, " e"]
) -> Float[Tensor, " e"]:
    """x₀·y_j for the first size[0] columns j, x₁·y_j for the next size[1], and so on.

    Several times as fast as sums over `y[column]`, since no points are copied.
    """
    crow = torch.nn.functional.pad(size.cumsum(0), (1, 0))
    pattern = csr(crow, column, torch.zeros_like(column, dtype=x.dtype), len(y))
    products: Tensor = torch.sparse.sampled_addmm(pattern, x, y.T, beta=0.0).values()
    return products
