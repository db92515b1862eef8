"""Reading rows that other ranks own."""

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lightning_diffal.graph.row_partition import Share
from lightning_diffal.numerics.ragged import run_positions, run_starts


class Reading:
    """Reads the same rows of one shared-out tensor after another: who asks whom for what is settled once.

    Rows may be needed from different steps on; reading at a step leaves out those that are needed later.

    Args:
        indices: Rows by their index, each once, ascending.
        since: The step from which each is needed, from 0; by default from the first.
        steps: How many steps there are, as many on every rank.

    Two collectives to settle, one to read. Bytes sent: 8 · steps to every other rank and 8 for each row of another rank
    to settle; the values of the rows that others read to read.
    """

    def __init__(
        self, share: Share, indices: Int[Tensor, " r"], since: Int[Tensor, " r"] | None = None, steps: int = 1
    ) -> None:
        self.share, self.indices, self.steps = share, indices, steps
        if share.alone:
            return
        ranks = share.ranks
        group = indices // share.block * steps + (0 if since is None else since)
        self.order = group.sort(stable=True).indices  # by owner, then by step, then by index
        to = torch.bincount(group, minlength=ranks.world * steps).view(ranks.world, steps)
        of = ranks.exchange(to, [1] * ranks.world, [1] * ranks.world)
        self.asked_of, self.asked_by = to.cumsum(dim=1), of.cumsum(dim=1)  # up to each step
        self.wanted = ranks.exchange(indices[self.order], self.asked_of[:, -1].tolist(), self.asked_by[:, -1].tolist())
        self.wanted -= share.first

    def __call__(self, values: Shaped[Tensor, "own ..."], step: int = 0) -> Shaped[Tensor, "r ..."]:
        """The rows, of which this rank has its own in `values`; unwritten memory where they are needed later."""
        if self.share.alone:
            return values[self.indices]
        to, of = self.asked_by[:, step], self.asked_of[:, step]
        mine = values[self.wanted[run_positions(run_starts(self.asked_by[:, -1]), to)]]
        got = self.share.ranks.exchange(mine, to.tolist(), of.tolist())
        if self.steps == 1:
            return got
        rows = got.new_empty(len(self.indices), *got.shape[1:])
        rows[self.order[run_positions(run_starts(self.asked_of[:, -1]), of)]] = got
        return rows
