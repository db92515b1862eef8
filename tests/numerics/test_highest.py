import pytest
import torch

from lightning_diffal.numerics.highest import GROUP, HighestFirst


@pytest.mark.parametrize("count", [1, GROUP, 5 * GROUP + 7])
def test_the_highest_numbers_are_those_of_a_whole_search_after_every_change(count):
    generator = torch.Generator().manual_seed(count)
    expected = torch.randint(-5, 50, (count,), generator=generator)
    highest = HighestFirst(expected)
    for _ in range(20):
        assert highest.argmax().tolist() == [int(expected.argmax())], "the first of equal ones"
        for many in (1, 3, count, 2 * count):
            rows = highest.topk(many)
            assert len(rows.unique()) == len(rows) == min(many, count)
            assert torch.equal(expected[rows], expected.topk(min(many, count)).values)
        rows = torch.randperm(count, generator=generator)[:9]
        expected[rows] = torch.randint(-9, 40, (len(rows),), generator=generator)
        highest[rows] = expected[rows]
        assert torch.equal(highest[rows], expected[rows])
