"""Random choices from a generator that is passed in, the same for a tensor on any device."""

from array import array
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from lightning_diffal.numerics.precision import wide_dtype

# Weights summed up before one of them is looked for.
BLOCK = 1024
# Weights are drawn in this many whole units of the largest; their sums stay below 2⁶³.
UNITS = 2.0**40
# Up to one number of so many is drawn by itself.
FEW = 4


def some(size: int, count: int, generator: torch.Generator, device: torch.device) -> Int[Tensor, " size"]:
    """So many of the numbers below `count`, or all of them, in random order."""
    if not 0 < FEW * size <= count:
        return torch.randperm(count, generator=generator, device=generator.device)[:size].to(device)
    # Shuffling all would take as long as the pool is large. Half as many more make up for numbers that come twice.
    drawn: dict[int, None] = {}
    while len(drawn) < size:
        more = torch.randint(count, (size + size // 2 + 1,), generator=generator, device=generator.device)
        drawn |= dict.fromkeys(more.tolist())
    return torch.frombuffer(array("q", list(drawn)[:size]), dtype=torch.long).to(device)


def proportional(weight: Float[Tensor, " n"], count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    """Places, each with a chance proportional to its weight; a place may come twice.

    At least one weight is positive, none is negative. First a block of weights is drawn, then one within it.
    """
    blocks = pad(weight, (0, -len(weight) % BLOCK)).view(-1, BLOCK)
    sums = blocks.sum(dim=1, dtype=wide_dtype(weight.device))
    block = one_of_each(sums.expand(count, -1), generator)
    return block * BLOCK + one_of_each(blocks[block], generator)


def one_of_each(weights: Float[Tensor, "t m"], generator: torch.Generator) -> Int[Tensor, " t"]:
    """A place in every row. Sums are of whole numbers, the same in any order and on every device."""
    total = (weights / weights.amax(dim=1, keepdim=True) * UNITS).long().cumsum(dim=1)
    wide = wide_dtype(generator.device)
    chance = torch.rand(len(weights), 1, generator=generator, device=generator.device, dtype=wide)
    drawn = (chance.to(total.device, wide_dtype(total.device)) * total[:, -1:]).long()
    return torch.searchsorted(total, drawn.clamp_max(total[:, -1:] - 1), right=True)[:, 0]


def plus_plus(
    first: Int[Tensor, " 1"],
    count: int,
    square_distance_to: Callable[[Int[Tensor, " t"]], Float[Tensor, "n t"]],
    generator: torch.Generator,
    trials: int = 1,
) -> tuple[Int[Tensor, " count"], Float[Tensor, " count"]]:
    """k-means++: each next point with a chance proportional to its squared distance D² to the nearest one so far.

    Of several trials, the one that leaves the smallest Σ D² counts. Where all points coincide with a chosen one, any of
    those left may come. With each point comes its D² when it was chosen, infinite for the first.

    Cost: `count` times that of `square_distance_to` and O(n · trials).
    Reference: Arthur & Vassilvitskii, k-means++: The Advantages of Careful Seeding, 2007.
    """
    nearest = square_distance_to(first)[:, 0]
    left = torch.ones_like(nearest)
    chosen, gaps = first.repeat(count), torch.full_like(nearest[:1], float("inf")).repeat(count)
    for place in range(1, count):
        nearest[chosen[place - 1]] = 0
        left[chosen[place - 1]] = 0
        weight = nearest if bool((nearest > 0).any()) else left
        points = proportional(weight, trials, generator)
        after = torch.minimum(nearest[:, None], square_distance_to(points))  # (n, trials)
        best = after.sum(dim=0).argmin() if trials > 1 else 0
        chosen[place] = points[best]
        gaps[place] = nearest[points[best]]
        nearest = after[:, best].contiguous()
    return chosen, gaps
