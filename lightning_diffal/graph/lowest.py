"""The smallest of many, with a rule for equal ones."""

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


def lowest(values: Shaped[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """Where the `count` lowest values of each row stand, in no order; of equal ones, those that come first.

    `topk` alone picks among equal values as it likes, another way on every device.
    """
    last = values.topk(count, largest=False).values.amax(dim=1, keepdim=True)
    position = torch.arange(values.shape[1], device=values.device).expand_as(values)
    # Surely in: -1. On the edge: the lower index first. Out: behind everything.
    turn = torch.where(values < last, -1, torch.where(values == last, position, values.shape[1]))
    return turn.topk(count, largest=False).indices
