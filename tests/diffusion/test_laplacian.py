"""Conjugate gradients against a direct solution, and their warning when they do not converge."""

import pytest
import torch

from lightning_diffal import build_graph
from lightning_diffal.diffusion.laplacian import Laplacian, conjugate_gradients
from tests import naive


def test_a_shifted_laplacian_is_solved_as_by_a_direct_method():
    points = torch.randn(80, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = build_graph(points, 6, symmetric=True)
    weight = torch.from_numpy(naive.dense(graph))
    right = torch.randn(80, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.linalg.solve(weight.sum(dim=1).diag() - weight + 0.1 * torch.eye(80), right)
    torch.testing.assert_close(Laplacian(graph).solve(right, 0.1), expected, rtol=0, atol=1e-4)


def path(n):
    """D^-½ W D^-½ of a path: 1 - it has a condition number of about n²."""
    weight = torch.diag(torch.ones(n - 1), 1).double()
    weight += weight.T.clone()
    scale = weight.sum(dim=1).rsqrt()
    return (scale[:, None] * weight * scale).to_sparse_csr()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_stopping_before_convergence_is_reported_with_residual_and_iterations():
    right = torch.zeros(300, 1, dtype=torch.float64)
    right[0], right[-1] = 1, -1
    with pytest.warns(UserWarning, match=r"stopped after 20 iterations with a relative residual of [\d.]+e[+-]\d+, wh"):
        conjugate_gradients(path(300), right, max_iterations=20)
    matrix, found = path(300), conjugate_gradients(path(300), right)  # converges, without a warning
    torch.testing.assert_close(found - matrix @ found, right, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_system_without_a_solution_is_reported():
    right = torch.ones(4, 1, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"stopped after \d+ iterations with a relative residual of"):
        conjugate_gradients(torch.eye(4, dtype=torch.float64).to_sparse_csr(), right)  # 0 v = 1
