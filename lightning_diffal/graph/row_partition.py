"""Which rows of a pool this rank owns, and how rows come to their owners."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lightning_diffal.distributed import Ranks

# Indices of all ranks that are sent along with their numbers, so that a few of them cost one collective and not two.
ALONG = 8192


@dataclass(frozen=True, eq=False)
class Share:
    """The rows of a pool of `size` points that each rank owns: ⌈n / W⌉ one after another, the last ranks fewer or none.

    A row has a number among all, its index, and a number among those of its rank, its place.
    """

    ranks: Ranks
    size: int

    @cached_property
    def block(self) -> int:
        """The most rows that any rank owns."""
        return -(-self.size // self.ranks.world)

    @cached_property
    def first(self) -> int:
        return min(self.ranks.rank * self.block, self.size)

    @cached_property
    def stop(self) -> int:
        return min(self.first + self.block, self.size)

    @property
    def alone(self) -> bool:
        return self.ranks.alone

    def __len__(self) -> int:
        """How many rows this rank owns."""
        return self.stop - self.first

    def indices(self, device: torch.device) -> Int[Tensor, " own"]:
        return torch.arange(self.first, self.stop, device=device)

    def of(self, values: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "own ..."]:
        """The rows of this rank, of a tensor that every rank has in full."""
        return values[self.first : self.stop]

    def mine(self, indices: Int[Tensor, " b"]) -> Bool[Tensor, " b"] | slice:
        """Which of these rows are this rank's."""
        return slice(None) if self.alone else (indices >= self.first) & (indices < self.stop)

    def places(self, indices: Int[Tensor, " b"]) -> Int[Tensor, " own"]:
        """Those of these rows that are this rank's, by their places."""
        return indices if self.alone else indices[self.mine(indices)] - self.first

    def told(self, indices: Int[Tensor, " b"], mine: Int[Tensor, " own"]) -> Int[Tensor, " b"]:
        """A whole number for each of these rows, which every rank knows of its own."""
        if self.alone:
            return mine
        known = torch.zeros_like(indices)
        known[self.mine(indices)] = mine
        return self.ranks.gather(known).sum(dim=0)

    def each(self, places: Int[Tensor, " own"]) -> Iterator[Int[Tensor, " part"]]:
        """The indices of rows that ranks name by their places, piece by piece; nothing if nobody names any.

        Bytes sent: 64 KiB, and 8 (W - 1) for each row beyond 8,192 / W that the rank with most of them names.
        """
        if self.alone:
            if len(places):
                yield places
            return
        indices = places + self.first
        along = max(1, ALONG // self.ranks.world - 1)
        some = indices.new_zeros(along + 1)
        some[0], some[1 : len(indices) + 1] = len(indices), indices[:along]
        heard = self.ranks.gather(some)
        counts = heard[:, 0].tolist()
        if any(counts):
            yield torch.cat([one[1 : count + 1] for one, count in zip(heard, counts, strict=True)])
        height = max(1, self.ranks.piece_bytes // (8 * self.ranks.world))
        for start in range(along, max(counts), height):
            length = min(height, max(counts) - start)
            part = indices.new_zeros(length)
            mine = indices[start : start + length]
            part[: len(mine)] = mine
            heard = self.ranks.gather(part)
            yield torch.cat([one[: max(0, count - start)] for one, count in zip(heard, counts, strict=True)])

    def lowest(
        self, keys: Float[Tensor, " own"], places: Int[Tensor, " own"], count: int, note: int = 0
    ) -> tuple[Float[Tensor, " b"], Int[Tensor, " b"], int]:
        """The `count` lowest of all ranks' keys by key and index, the indices of their rows, and the sum of the notes.

        Each rank gives its own lowest in that order, at most `count` of them.
        """
        if self.alone:
            return keys, places, note
        said = torch.full((count + 1, 2), -1, dtype=torch.long, device=places.device)
        said[0] = torch.tensor([len(keys), note], device=places.device)
        said[1 : len(keys) + 1, 0] = keys.double().view(torch.long)  # its bits
        said[1 : len(keys) + 1, 1] = places + self.first
        heard = self.ranks.gather(said)
        lists = [one[1 : held + 1] for one, held in zip(heard, heard[:, 0, 0].tolist(), strict=True)]
        bits, indices = torch.cat(lists).unbind(dim=1)
        # Ranks own ascending indices, so that a stable sort leaves equal keys in the order of their indices.
        lowest, order = bits.contiguous().view(torch.double).sort(stable=True)
        return lowest[:count].to(keys.dtype), indices[order[:count]], int(heard[:, 0, 1].sum())

    def sent_home(
        self, indices: Int[Tensor, " r"], values: Shaped[Tensor, "r w"]
    ) -> Iterator[tuple[Int[Tensor, " g"], Shaped[Tensor, "g w"]]]:
        """Send rows of whole numbers to their owners: the places of those that came, and the rows, piece by piece."""
        if self.alone:
            yield indices, values
            return
        world = self.ranks.world
        # If all of them send to one, it gets a piece.
        height = max(1, self.ranks.piece_bytes // (8 * world * (1 + values.shape[1])))
        for start in range(0, max(self.ranks.tell(len(indices))), height):
            some = indices[start : start + height]
            owner, order = (some // self.block).sort(stable=True)
            to = torch.bincount(owner, minlength=world)
            of = self.ranks.gather(to)[:, self.ranks.rank]
            rows = torch.cat([some[:, None], values[start : start + height]], dim=1)[order]
            got = self.ranks.exchange(rows, to.tolist(), of.tolist())
            yield got[:, 0] - self.first, got[:, 1:]
