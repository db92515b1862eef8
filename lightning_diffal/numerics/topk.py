"""The k smallest values of each row: with a rule for ties, or as fast as possible.

On the CPU, NumPy sorts and partitions short rows with vector instructions, three to eight times as fast as torch.
"""

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

# `topk_grouped` sorts the minima of groups of this many values first. Fewer give more minima to sort, more give more
# values to sort afterwards.
GROUP = 8
# `topk` is fast where rows have this many times as many values as are asked for: it keeps a heap of the smallest.
HEAP_FROM = 64


def topk_lowest(values: Shaped[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """The columns of the `count` lowest values of each row, in no order; of equal values, the lower columns.

    `topk` alone picks any of equal values, not the same ones on every device.
    """
    last = values.topk(count, largest=False).values.amax(dim=1, keepdim=True)
    column = torch.arange(values.shape[1], device=values.device).expand_as(values)
    # Below the last value: always taken. Equal to it: by column. Above it: never.
    priority = torch.where(values < last, -1, torch.where(values == last, column, values.shape[1]))
    return priority.topk(count, largest=False).indices


def topk_grouped(values: Float[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """The columns of the `count` smallest values of each row, in no order; any of equal values.

    n must be a multiple of GROUP. The smallest values are in the `count` groups with the smallest minima, so that only
    those are sorted, which is several times as fast as `topk` of whole rows.
    """
    width = values.shape[1] // GROUP
    if width < count:
        return smallest(values, count)
    group = smallest(values.view(-1, GROUP, width).amin(dim=1), count)
    member = torch.arange(0, GROUP * width, width, device=values.device)
    column = (group[:, None] + member[:, None]).flatten(1)  # (b, GROUP * count)
    return column.gather(1, smallest(values.gather(1, column), count))


def smallest(values: Float[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """The columns of the `count` smallest values of each row, in no order."""
    short = values.shape[1] < HEAP_FROM * count
    if values.device.type != "cpu" or values.dtype != torch.float32 or not short:
        return values.topk(count, largest=False, sorted=False).indices
    # Value and column in one integer. The bits of floats sort as the floats do, once those of negative ones are turned.
    bits = values.contiguous().view(torch.int32)
    key = ((bits >> 31 & 0x7FFFFFFF) ^ bits).long().bitwise_left_shift_(32)
    key |= torch.arange(values.shape[1], device=values.device)
    return torch.from_numpy(np.partition(key.numpy(), count - 1, axis=1)[:, :count]) & 0xFFFFFFFF


def kth_smallest(values: Float[Tensor, "b n"], k: int) -> Float[Tensor, "b 1"]:
    """The k-th smallest value of each row, k from 1."""
    if values.device.type != "cpu":
        return values.kthvalue(k, dim=1, keepdim=True).values
    return torch.from_numpy(np.partition(values.numpy(), k - 1, axis=1)[:, k - 1 : k].copy())


def sort_rows(values: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Each row in ascending order."""
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    return torch.from_numpy(np.sort(values.numpy(), axis=1))


def padded_size(size: Int[Tensor, " m"]) -> Int[Tensor, " m"]:
    """The next multiple of GROUP."""
    return size + -size % GROUP


def pad_to_groups(points: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "p d"], Float[Tensor, " p"]]:
    """The points and half their squared norms, padded to a multiple of GROUP with points at infinity."""
    missing = -len(points) % GROUP
    half_square = points.square().sum(dim=1) / 2
    if missing == 0:
        return points, half_square
    pad = torch.nn.functional.pad
    return pad(points, (0, 0, 0, missing)), pad(half_square, (0, missing), value=float("inf"))
