"""Columns that are kept for the next choices, as many as there is room for."""

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_diffal.diffusion.sparse_rows import Entries, SparseRows

STORED_ENTRIES = 2**23


class StoredColumns(SparseRows):
    """A column for each of some nodes: of those with the highest bounds, if there is not enough room for all."""

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        super().__init__(num_nodes, device)
        self.store_above = 0  # the bound

    def store(self, nodes: Int[Tensor, " b"], columns: Entries, bound: Int[Tensor, " n"]) -> None:
        """Keep these columns of nodes, in place of those with lower bounds."""
        if self.num_entries + len(columns.col) > STORED_ENTRIES:
            stored = (self.length > 0).nonzero()[:, 0]
            stored = stored[bound[stored].argsort(descending=True)]
            drop = stored[self.length[stored].cumsum(0) > STORED_ENTRIES // 2]
            if len(drop):
                self.store_above = max(self.store_above, int(bound[drop[0]]))
            self.clear(drop)
        high = bound[nodes] > self.store_above
        self.clear(nodes[~high])
        nodes, columns = nodes[high], columns[high.nonzero()[:, 0]]
        if self.num_entries + len(columns.col) > STORED_ENTRIES:
            self.clear(nodes)
        else:
            self[nodes] = columns

    def bounds_fell_to(self, bound: int) -> None:
        """Store lower ones again, once the highest bound there is would not have been stored."""
        if bound <= self.store_above:
            self.store_above = 0
