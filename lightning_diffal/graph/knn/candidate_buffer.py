"""The nearest candidates found so far, for a block of query rows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.ragged import run_positions, run_starts


class CandidateBuffer:
    """Collects candidates for each of a block of rows and keeps the nearest.

    Args:
        position: The initial candidates of each row, in no order. The same number is kept.
        excess: For each of them half of (squared distance - limit of the row).
        limit: A bound of the squared distance, one for each row.
        capacity: How many more candidates are held before the far ones are dropped.
    """

    def __init__(
        self,
        position: Int[Tensor, "b count"],
        excess: Float[Tensor, "b count"],
        limit: Float[Tensor, " b"],
        capacity: int,
    ) -> None:
        self.position, self.excess, self.limit, self.capacity = position, excess, limit, capacity
        self.added: list[tuple[Tensor, Tensor, Tensor]] = []
        self.num_added = 0

    def add(self, row: Int[Tensor, " s"], position: Int[Tensor, " s"], excess: Float[Tensor, " s"]) -> None:
        self.added.append((row, position, excess))
        self.num_added += len(row)
        # Where very many points are equally far, all of them are candidates.
        if self.num_added > self.capacity:
            self.drop_far()

    def nearest(self) -> Int[Tensor, "b count"]:
        """The positions of the nearest candidates of each row, in no order."""
        self.drop_far()
        return self.position

    def drop_far(self) -> None:
        """Keep the nearest of the old and the added candidates. Rows with nothing added stay as they are."""
        if self.num_added == 0:
            return
        row, position, excess = (torch.cat(column) for column in zip(*self.added, strict=True))
        count = self.position.shape[1]
        changed = torch.zeros_like(self.limit, dtype=torch.bool)
        changed[row] = True
        rows = changed.nonzero()[:, 0]
        row = torch.cat([rows.repeat_interleave(count), row])
        position = torch.cat([self.position[rows].flatten(), position])
        excess = torch.cat([self.excess[rows].flatten(), excess])
        distance = torch.add(self.limit.index_select(0, row), excess, alpha=2).clamp_min_(0)
        # The bits of non-negative floats sort as the floats do, so one integer sort orders by row and distance.
        order = ((row << 32) | distance.view(torch.int32)).sort().indices
        size = torch.bincount(row, minlength=len(changed))[rows]
        kept = order[run_positions(run_starts(size), torch.full_like(size, count))]
        self.position[rows], self.excess[rows] = position[kept].view(-1, count), excess[kept].view(-1, count)
        self.added, self.num_added = [], 0
