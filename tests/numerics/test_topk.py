import pytest
import torch

from lightning_diffal.numerics.topk import GROUP, pad_to_groups, padded_size, topk_grouped, topk_lowest


@pytest.mark.parametrize("count", [1, 3, 20, 40])
def test_of_equal_values_the_lower_columns_are_taken(count):
    values = torch.randint(5, (30, 40), generator=torch.Generator().manual_seed(0))
    expected = values.sort(dim=1, stable=True).indices[:, :count]
    assert torch.equal(topk_lowest(values, count).sort(dim=1).values, expected.sort(dim=1).values)


@pytest.mark.parametrize("count", [1, 4, 9, 10, 64, 80])
def test_groups_give_the_smallest_values_of_a_full_sort(count):
    values = torch.randn(50, 10 * GROUP, generator=torch.Generator().manual_seed(0))
    found = values.gather(1, topk_grouped(values, count)).sort(dim=1).values
    assert torch.equal(found, values.sort(dim=1).values[:, :count])


@pytest.mark.parametrize("n", [1, GROUP - 1, GROUP, GROUP + 1])
def test_padding_is_infinitely_far_from_every_point(n):
    points = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    padded, half_square = pad_to_groups(points)
    assert len(padded) % GROUP == 0
    assert len(padded) == int(padded_size(torch.tensor([n])))
    distance = (half_square - points @ padded.T) * 2 + points.square().sum(dim=1, keepdim=True)
    torch.testing.assert_close(distance[:, :n], torch.cdist(points, points).square(), rtol=1e-4, atol=1e-5)
    assert distance[:, n:].isinf().all()
