"""An order in which near points follow each other: what one row of a search reads is still cached for the next."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.contraction import leading_directions
from lightning_diffal.numerics.kmeans import lloyd, nearest_center
from lightning_diffal.numerics.threads import run_parallel, single_thread

# Points of the sample, the directions taken from it, and the points of a cell, on average.
SAMPLE, DIRECTIONS, CELL_SIZE = 2048, 24, 256
ITERATIONS = 5
# Points assigned to cells at a time.
PART = 1024


def local_order(points: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
    """The rows sorted by rough cells, these by the strongest direction.

    Cost: O(n d) for each of the 24 directions, a hundredth of a search.
    """
    generator = torch.Generator(device=points.device).manual_seed(0)
    sample = points[torch.randperm(len(points), generator=generator, device=points.device)[:SAMPLE]]
    with single_thread():  # the order of the rows must not depend on the number of threads
        basis = leading_directions(sample, DIRECTIONS, generator).float()
        projected = sample @ basis
        center = lloyd(projected, projected[: max(1, len(points) // CELL_SIZE)], ITERATIONS)
    center = center[center[:, 0].argsort()]
    cell = torch.empty_like(points[:, 0], dtype=torch.long)

    def assign(start: int) -> None:
        cell[start : start + PART] = nearest_center(points[start : start + PART] @ basis, center)

    run_parallel(assign, range(0, len(points), PART), points.device)
    return cell.argsort(stable=True)
