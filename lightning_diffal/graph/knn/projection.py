"""How many principal directions the search of a pool in many dimensions should look at first."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.distributed import Ranks
from lightning_diffal.numerics.contraction import contract, leading_directions
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.threads import run_parallel, single_thread

DIRECTIONS = (31, 63, 127)
# Points of the sample, whose directions are taken, and those of it whose neighbors are found.
SAMPLE, ROWS = 2048, 64
# Points compared with those at a time, so that the copies stay in the cache.
COMPARED = 1024
# The distance of a single pair takes as long as so many in a product.
PAIR_COST = 40
# Of the pool, in cells that cannot be skipped. The cells are not known yet; this is about what trained layers have.
USUAL_FRACTION = 0.3


def choose_basis(
    points: Float[Tensor, "n d"], count: int, max_cost: float, ranks: Ranks
) -> Float[Tensor, "d m"] | None:
    """The directions in which a search costs least, the same on all ranks; None where it costs more than `max_cost`.

    The cost is a fraction of that of products with the whole pool: that of products in the m + 1 `contract`ed
    dimensions, and of the true distances of all pairs not ruled out there. On points without structure no projection
    rules out any pair. Cost: that of ROWS rows of the search, and O(SAMPLE d m).
    """
    if wide_dtype(points.device) != torch.float64:
        return None  # the directions could not be proven orthogonal
    generator = torch.Generator(device=points.device).manual_seed(0)
    drawn = torch.randperm(len(points), generator=generator, device=points.device)[:SAMPLE]
    sample = points[drawn]
    to_all = points.new_empty(len(sample[:ROWS]), len(points))

    def compare(start: int) -> None:
        part = slice(start, start + COMPARED)
        to_all[:, part] = torch.cdist(sample[:ROWS], points[part])

    run_parallel(compare, range(0, len(points), COMPARED), points.device)
    costs = {}
    with single_thread():  # many small operations; and the directions must not depend on the number of threads
        last = to_all.topk(count, largest=False).values[:, -1:]
        basis = leading_directions(sample, DIRECTIONS[-1], generator)
        for number in DIRECTIONS:
            seen = contract(sample, basis[:, :number])
            hits = (torch.cdist(seen[:ROWS], seen) <= last).float().mean()
            costs[number] = USUAL_FRACTION * (number + 1) / points.shape[1] + PAIR_COST * float(hits)
    best = min(costs, key=costs.__getitem__)
    number = int(ranks.broadcast(torch.tensor(best if costs[best] <= max_cost else 0, device=points.device)))
    return ranks.broadcast(basis[:, :number].contiguous()) if number else None
