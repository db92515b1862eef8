"""Principal components against an independent decomposition."""

import numpy as np
import pytest
import torch

from lightning_diffal.numerics import pca
from lightning_diffal.numerics.pca import principal_components


def sample(n, d, rank=8):
    """A few strong directions and a little noise, far from the origin, as embeddings have them."""
    generator = torch.Generator().manual_seed(0)
    strong = torch.randn(n, rank, generator=generator) @ torch.randn(rank, d, generator=generator)
    return strong * 3 + torch.randn(n, d, generator=generator) / 10 + 50


def by_svd(points, dimensions):
    points = points.double().numpy()
    _, _, rows = np.linalg.svd(points - points.mean(0), full_matrices=False)
    rows = rows[:dimensions]
    rows = rows * np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(1)])[:, None]
    return (points - points.mean(0)) @ rows.T


@pytest.mark.parametrize(("n", "d"), [(200, 30), (40, 300)], ids=["covariance", "more dimensions than points"])
def test_components_are_those_of_a_singular_value_decomposition(n, d):
    points = sample(n, d)
    found = principal_components(points, 6)
    torch.testing.assert_close(found, torch.tensor(by_svd(points, 6)).float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(found, principal_components(points, 6))


def test_many_points_of_many_dimensions_by_subspace_iteration(monkeypatch):
    points, exact = sample(300, 200), by_svd(sample(300, 200), 6)
    monkeypatch.setattr(pca, "EXACT_SIZE", 100)
    before = torch.random.get_rng_state()
    torch.testing.assert_close(principal_components(points, 6), torch.tensor(exact).float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(before, torch.random.get_rng_state()), "the global generator is untouched"


def test_tiles_and_scales_change_nothing(monkeypatch):
    points = sample(100, 20)
    found = principal_components(points, 5)
    monkeypatch.setattr(pca, "TILE_ENTRIES", 140)
    torch.testing.assert_close(principal_components(points, 5), found)
    torch.testing.assert_close(principal_components(points * 2.0**100, 5), found * 2.0**100)
    assert principal_components(points.half(), 5).dtype == torch.float32


def test_fewer_points_than_components_give_zeros_and_keep_distances():
    points = sample(4, 50).double()
    found = principal_components(points, 10)
    assert found.shape == (4, 10)
    assert torch.count_nonzero(found[:, 4:]) == 0
    torch.testing.assert_close(torch.cdist(found, found), torch.cdist(points, points))
