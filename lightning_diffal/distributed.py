"""The processes that work on one pool together, and the collectives they use. torch.distributed only."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check


@skip_type_check
@dataclass(frozen=True)
class Ranks:
    """A group of processes, one of which is this one. `Ranks()` is a single process without communication.

    Every method is a collective: all ranks of the group must call the same methods in the same order.

    Args:
        rank: Which of them this process is, from 0.
        world: How many there are.
        group: A group of torch.distributed, by default all processes.
    """

    rank: int = 0
    world: int = 1
    group: Any = None

    def __post_init__(self) -> None:
        check_count("Ranks", "world", self.world)
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 0 <= self.rank < self.world:
            raise ValueError(f"Ranks(rank={self.rank!r}, world={self.world}): a rank in [0, {self.world}) is needed.")
        if self.world > 1 and not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                f"Ranks(world={self.world}): torch.distributed.init_process_group must have been called. "
                "Ranks() is a single process."
            )

    @staticmethod
    def of_group(group: Any = None) -> "Ranks":
        """The ranks of a group, by default of all processes; a single one where torch.distributed is not in use."""
        if not (dist.is_available() and dist.is_initialized()):
            return Ranks()
        return Ranks(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def single(self) -> bool:
        return self.world == 1

    def own_rows(self, size: int) -> slice:
        """The rows of a tensor of `size` rows that this rank works on: ⌈size / world⌉, the last ranks fewer or none."""
        block = -(-size // self.world)
        return slice(min(self.rank * block, size), min((self.rank + 1) * block, size))

    def all_gather(self, values: Tensor) -> Tensor:
        """The values of every rank, (world, *shape). The shape is the same on all ranks."""
        if self.single:
            return values[None]
        local = self.to_backend_device(values)
        gathered = local.new_empty(self.world, *local.shape)
        dist.all_gather(list(gathered.unbind()), local, group=self.group)
        return gathered.to(values.device)

    def all_gather_int(self, value: int) -> list[int]:
        """The integer of every rank."""
        gathered: list[int] = self.all_gather(torch.tensor(value, device="cpu")).tolist()
        return gathered

    def all_gather_cat(self, values: Tensor) -> Tensor:
        """The values of all ranks, concatenated. The first dimension may differ between ranks."""
        if self.single:
            return values
        lengths = self.all_gather_int(len(values))
        padded = values.new_zeros(max(lengths), *values.shape[1:])
        padded[: len(values)] = values
        parts = self.all_gather(padded)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def broadcast(self, values: Tensor) -> Tensor:
        """The values of rank 0. The shape is the same on all ranks."""
        if self.single:
            return values
        received = self.to_backend_device(values).clone()
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        dist.broadcast(received, source, group=self.group)
        return received.to(values.device)

    def sum(self, value: int) -> int:
        """The sum of an integer over all ranks."""
        return sum(self.all_gather_int(value))

    def to_backend_device(self, values: Tensor) -> Tensor:
        # Gloo exchanges host memory, NCCL the memory of its devices.
        device = {"gloo": "cpu", "nccl": "cuda"}.get(dist.get_backend(self.group), values.device)
        return values.to(device).contiguous()


SINGLE_PROCESS = Ranks()
