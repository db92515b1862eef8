"""The processes that work on one pool together, and what they say to each other. torch.distributed only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check

# Bytes a rank holds at a time of what belongs to others.
PIECE_BYTES = 2**26


@skip_type_check
@dataclass(eq=False)
class Ranks:
    """A group of processes, one of which is this one. `Ranks()` is one process alone, which talks to nobody.

    Everything is a collective: all ranks of the group must call the same methods in the same order. What is too much
    to be held at once is exchanged in pieces, as many on every rank, whatever it owns.

    Args:
        rank: Which of them this process is, from 0.
        world: How many there are.
        group: A group of torch.distributed, by default all processes.
        piece_bytes: How much of what belongs to others is held at a time.
    """

    rank: int = 0
    world: int = 1
    group: Any = None
    piece_bytes: int = PIECE_BYTES
    calls: int = 0
    """Collectives so far."""
    sent: int = 0
    """Bytes that have left this rank for others, an all-gather counted once for each of them."""

    def __post_init__(self) -> None:
        check_count("Ranks", "world", self.world)
        check_count("Ranks", "piece_bytes", self.piece_bytes)
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 0 <= self.rank < self.world:
            raise ValueError(f"Ranks(rank={self.rank!r}, world={self.world}): a rank in [0, {self.world}) is needed.")
        if self.world > 1 and not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                f"Ranks(world={self.world}): torch.distributed.init_process_group must have been called. "
                "Ranks() is one process alone."
            )

    @staticmethod
    def of_group(group: Any = None) -> "Ranks":
        """The ranks of a group, by default of all processes; alone where torch.distributed is not in use."""
        if not (dist.is_available() and dist.is_initialized()):
            return Ranks()
        return Ranks(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def alone(self) -> bool:
        return self.world == 1

    def gather(self, values: Tensor) -> Tensor:
        """What each rank has, (world, *shape); of one shape on all of them."""
        if self.alone:
            return values[None]
        wire = self.to_wire(values)
        all_of_them = wire.new_empty(self.world, *wire.shape)
        dist.all_gather(list(all_of_them.unbind()), wire, group=self.group)
        self.count(wire.nbytes * (self.world - 1))
        return all_of_them.to(values.device)

    def sum(self, value: int) -> int:
        """The sum of a whole number over all ranks."""
        return sum(self.tell(value))

    def tell(self, value: int) -> list[int]:
        """The whole number that each rank has."""
        if self.alone:
            return [value]
        # NCCL exchanges the memory of its devices only.
        device = "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"
        told: list[int] = self.gather(torch.tensor(value, device=device)).tolist()
        return told

    def joined(self, values: Tensor) -> Tensor:
        """What each rank has, one after another; the first dimension may be of any length on each."""
        if self.alone:
            return values
        lengths = self.tell(len(values))
        padded = values.new_zeros(max(lengths), *values.shape[1:])
        padded[: len(values)] = values
        whole = values.new_empty(self.world, *padded.shape)
        height = max(1, self.piece_bytes // max(1, self.world * padded[:1].nbytes))
        for start in range(0, len(padded), height):
            whole[:, start : start + height] = self.gather(padded[start : start + height])
        return torch.cat([part[:length] for part, length in zip(whole, lengths, strict=True)])

    def first(self, values: Tensor) -> Tensor:
        """What rank 0 has, on every rank; of one shape on all of them."""
        if self.alone:
            return values
        wire = self.to_wire(values).clone()
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        dist.broadcast(wire, source, group=self.group)
        self.count(wire.nbytes * (self.world - 1) if self.rank == 0 else 0)
        return wire.to(values.device)

    def exchange(self, rows: Tensor, to: Sequence[int], of: Sequence[int]) -> Tensor:
        """Send the first `to[0]` rows to rank 0, the next `to[1]` to rank 1, ...; get `of[r]` rows from each rank r."""
        if self.alone:
            return rows
        wire = self.to_wire(rows)
        got = wire.new_empty(sum(of), *wire.shape[1:])
        dist.all_to_all_single(got, wire, list(of), list(to), group=self.group)
        self.count(wire.element_size() * math.prod(wire.shape[1:]) * (len(rows) - to[self.rank]))
        return got.to(rows.device)

    def to_wire(self, values: Tensor) -> Tensor:
        # Gloo exchanges host memory only.
        host = values.device.type != "cpu" and dist.get_backend(self.group) == "gloo"
        return (values.cpu() if host else values).contiguous()

    def count(self, sent: int) -> None:
        self.calls += 1
        self.sent += sent


SINGLE_PROCESS = Ranks()
