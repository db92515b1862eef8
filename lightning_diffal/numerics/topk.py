"""The smallest of many, with a rule for equal ones."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

# Values a group holds: the minimum of each stands for all of them.
GROUP = 8


def lowest(values: Shaped[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """Where the `count` lowest values of each row stand, in no order; of equal ones, those that come first.

    `topk` alone picks among equal values as it likes, another way on every device.
    """
    last = values.topk(count, largest=False).values.amax(dim=1, keepdim=True)
    position = torch.arange(values.shape[1], device=values.device).expand_as(values)
    # Surely in: -1. On the edge: the lower index first. Out: behind everything.
    turn = torch.where(values < last, -1, torch.where(values == last, position, values.shape[1]))
    return turn.topk(count, largest=False).indices


def in_groups(points: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "g d"], Float[Tensor, " g"]]:
    """The points and half their squared norms, filled up to whole groups with points that are infinitely far."""
    missing = -len(points) % GROUP
    half_square = points.square().sum(dim=1) / 2
    pad = torch.nn.functional.pad
    return pad(points, (0, 0, 0, missing)), pad(half_square, (0, missing), value=float("inf"))


def smallest(values: Float[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """Where the `count` smallest values of each row stand, in no order, equal ones as it comes.

    n is a multiple of GROUP. The smallest are in the `count` groups with the smallest minima, so that only those are
    sorted, which is several times as fast as `topk` of whole rows.
    """
    width = values.shape[1] // GROUP
    if width < count:
        return values.topk(count, largest=False, sorted=False).indices
    group = values.view(-1, GROUP, width).amin(dim=1).topk(count, largest=False, sorted=False).indices
    member = torch.arange(0, GROUP * width, width, device=values.device)
    place = (group[:, None] + member[:, None]).flatten(1)  # (b, GROUP * count)
    return place.gather(1, values.gather(1, place).topk(count, largest=False, sorted=False).indices)
