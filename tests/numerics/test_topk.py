import pytest
import torch

from lightning_diffal.numerics.topk import (
    GROUP,
    kth_smallest,
    pad_to_groups,
    padded_size,
    smallest,
    sort_rows,
    topk_grouped,
    topk_lowest,
)


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


@pytest.mark.parametrize("width", [8, 24, 96, 2000])
def test_the_smallest_values_of_short_and_long_rows_are_those_of_a_sort(width):
    values = torch.randn(50, width, generator=torch.Generator().manual_seed(width))
    values[:, ::7] = float("inf")
    values[0] = values[0].abs().neg()
    values[1, :4] = torch.tensor([0.0, -0.0, 1e-45, -1e-45])
    for count in (1, 5, 8):
        found = smallest(values, count)
        assert all(len(set(row)) == count for row in found.tolist())
        assert torch.equal(values.gather(1, found).sort(dim=1).values, values.sort(dim=1).values[:, :count])
        assert torch.equal(kth_smallest(values, count), values.sort(dim=1).values[:, count - 1 : count])


def test_rows_are_sorted_and_what_was_given_is_unchanged():
    given = torch.randint(9, (30, 12), generator=torch.Generator().manual_seed(0))
    before = given.clone()
    assert torch.equal(sort_rows(given), given.sort(dim=1).values)
    assert torch.equal(given, before)
