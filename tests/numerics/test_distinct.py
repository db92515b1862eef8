import pytest
import torch

from lightning_diffal.numerics.distinct import distinct


@pytest.mark.parametrize("count", [0, 1, 40, 900])
def test_nodes_come_once_and_in_order_however_they_are_found(count):
    nodes = torch.randint(1000, (count,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    once, place = distinct(nodes, 1000)
    assert once.tolist() == sorted(set(nodes.tolist()))
    assert torch.equal(once[place], nodes.long())
