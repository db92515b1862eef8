"""Random choices from a generator that is passed in, the same for a tensor on any device."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from lightning_diffal.numerics.precision import wide_dtype

# Weights are summed in blocks of this many, so that one is found without a cumulative sum over all of them.
BLOCK = 1024
# Weights are rounded to multiples of the largest / UNITS; their integer sums stay below 2⁶³.
UNITS = 2.0**40
# Samples of at most 1 / SHUFFLE_FROM of all numbers are drawn one by one, larger ones by shuffling all numbers.
SHUFFLE_FROM = 4


def sample_without_replacement(
    size: int, count: int, generator: torch.Generator, device: torch.device
) -> Int[Tensor, " size"]:
    """`size` different integers in [0, count), or all of them, in random order."""
    if not 0 < SHUFFLE_FROM * size <= count:
        return torch.randperm(count, generator=generator, device=generator.device)[:size].to(device)
    # Shuffling all would cost O(count). Half of the size is drawn in addition, for numbers that are drawn twice.
    drawn: dict[int, None] = {}
    while len(drawn) < size:
        more = torch.randint(count, (size + size // 2 + 1,), generator=generator, device=generator.device)
        drawn |= dict.fromkeys(more.tolist())
    return torch.tensor(list(drawn)[:size], device=device)


def sample_proportional(weight: Float[Tensor, " n"], count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    """`count` indices with replacement, each with a probability proportional to its weight.

    At least one weight must be positive, none negative. First a block of weights is drawn, then one within it.
    """
    blocks = pad(weight, (0, -len(weight) % BLOCK)).view(-1, BLOCK)
    sums = blocks.sum(dim=1, dtype=wide_dtype(weight.device))
    block = sample_one_per_row(sums.expand(count, -1), generator)
    return block * BLOCK + sample_one_per_row(blocks[block], generator)


def sample_one_per_row(weights: Float[Tensor, "t m"], generator: torch.Generator) -> Int[Tensor, " t"]:
    """A column for each row, with a probability proportional to its weight.

    Sums are of integers, the same in any order and on every device.
    """
    total = (weights / weights.amax(dim=1, keepdim=True) * UNITS).long().cumsum(dim=1)
    wide = wide_dtype(generator.device)
    uniform = torch.rand(len(weights), 1, generator=generator, device=generator.device, dtype=wide)
    drawn = (uniform.to(total.device, wide_dtype(total.device)) * total[:, -1:]).long()
    return torch.searchsorted(total, drawn.clamp_max(total[:, -1:] - 1), right=True)[:, 0]


def kmeans_plus_plus(
    first: Int[Tensor, " 1"],
    count: int,
    distance_to: Callable[[Int[Tensor, " t"]], Float[Tensor, "n t"]],
    generator: torch.Generator,
    trials: int = 1,
) -> tuple[Int[Tensor, " count"], Float[Tensor, " count"]]:
    """Each next point with a probability proportional to its squared distance D² to the nearest one chosen so far.

    Of several trials, the one with the smallest Σ D² afterwards is chosen. Where all points coincide with a chosen one,
    any of the others may be drawn. Returned with each point is its D² when it was chosen, infinite for the first.

    Cost: `count` times that of `distance_to` and O(n · trials).
    Reference: Arthur & Vassilvitskii, k-means++: The Advantages of Careful Seeding, 2007.
    """
    nearest = distance_to(first)[:, 0]
    not_chosen = torch.ones_like(nearest)
    chosen, square = first.repeat(count), torch.full_like(nearest[:1], float("inf")).repeat(count)
    for i in range(1, count):
        nearest[chosen[i - 1]] = 0
        not_chosen[chosen[i - 1]] = 0
        weight = nearest if bool((nearest > 0).any()) else not_chosen
        drawn = sample_proportional(weight, trials, generator)
        after = torch.minimum(nearest[:, None], distance_to(drawn))  # (n, trials)
        best = after.sum(dim=0).argmin() if trials > 1 else 0
        chosen[i] = drawn[best]
        square[i] = nearest[drawn[best]]
        nearest = after[:, best].contiguous()
    return chosen, square
