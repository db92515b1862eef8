from collections import Counter

import pytest
import torch

from lightning_diffal.numerics.sampling import kmeans_plus_plus, sample_proportional, sample_without_replacement


@pytest.mark.parametrize("zeros_between", [0, 1, 700, 5000])  # within one block of the sums, and in several
def test_indices_are_drawn_in_proportion_to_their_weights(zeros_between):
    weight = torch.zeros(8, 1 + zeros_between)
    weight[:, 0] = torch.tensor([0.0, 1, 0, 5, 2, 0, 0, 2])
    drawn = sample_proportional(weight.flatten(), 2000, torch.Generator().manual_seed(0))
    frequency = torch.bincount(drawn, minlength=weight.numel()) / 2000
    assert (frequency[weight.flatten() == 0] == 0).all()
    assert frequency.tolist() == pytest.approx((weight.flatten() / 10).tolist(), abs=0.05)  # four standard deviations


def test_a_sample_without_replacement_has_no_number_twice_and_at_most_all():
    def drawn(size):
        return sample_without_replacement(size, 50, torch.Generator().manual_seed(0), torch.device("cpu"))

    assert sorted(drawn(60).tolist()) == list(range(50))
    assert drawn(60).tolist() != list(range(50))
    for size in (0, 1, 9, 12, 13, 40):  # up to 12 are drawn one by one
        assert len(set(drawn(size).tolist())) == size
        assert set(drawn(size).tolist()) <= set(range(50))
        assert torch.equal(drawn(size), drawn(size))
        assert drawn(size).dtype == torch.long


@pytest.mark.parametrize("count", [4, 12, 16])
def test_all_orders_of_a_sample_are_equally_likely(count):
    generator, orders = torch.Generator().manual_seed(0), Counter[tuple[int, ...]]()
    for _ in range(200 * count * (count - 1)):
        orders[tuple(sample_without_replacement(2, count, generator, torch.device("cpu")).tolist())] += 1
    assert len(orders) == count * (count - 1)
    # Each order comes 200 times on average, with a standard deviation of 14.
    assert min(orders.values()) > 200 - 70
    assert max(orders.values()) < 200 + 70


def squared_distances_on_a_line(points):
    return lambda rows: (points[:, None] - points[rows]).square()


def test_copies_of_a_chosen_point_are_drawn_last():
    points = torch.tensor([0.0, 0, 0, 0, 1, 2, 3])
    chosen, gaps = kmeans_plus_plus(
        torch.tensor([0]), 7, squared_distances_on_a_line(points), torch.Generator().manual_seed(0)
    )
    assert sorted(chosen[1:4].tolist()) == [4, 5, 6]
    assert sorted(chosen.tolist()) == list(range(7))
    assert gaps[4:].tolist() == [0, 0, 0]


def test_far_points_are_drawn_more_often():
    points, generator = torch.tensor([0.0, 1, 3]), torch.Generator().manual_seed(0)
    second = [
        int(kmeans_plus_plus(torch.tensor([0]), 2, squared_distances_on_a_line(points), generator)[0][1])
        for _ in range(1000)
    ]
    assert sum(one == 2 for one in second) / 1000 == pytest.approx(0.9, abs=0.04)  # 9 of 1 + 9
