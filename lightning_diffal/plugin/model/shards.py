"""Each rank embeds its shard of the pool; the shards are all-gathered."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.plugin.model.embedding import Embedded
from lightning_diffal.selectors.snapshot import StochasticPasses


def shard_of_rank(indices: Sequence[int], rank: int, world: int) -> list[int]:
    """Entry (rank + j · world) mod n for j < ⌈n / world⌉: as many on every rank, or collectives would deadlock."""
    size = -(-len(indices) // world)
    return [indices[(rank + j * world) % len(indices)] for j in range(size)]


def ranks_of(trainer: Any) -> Ranks:
    """The processes of this Trainer, as far as torch.distributed knows them."""
    return SINGLE_PROCESS if trainer.world_size == 1 else Ranks.of_group()


def all_gather_shards(trainer: Any, shard: Embedded, size: int) -> Embedded:
    """The shards of all ranks in the order of the pool, each point once."""
    if trainer.world_size == 1:
        return shard

    def all_gather(part: Tensor | None) -> Tensor | None:
        return None if part is None else gather_shards(trainer, part, size)

    passes = shard.stochastic
    if passes is not None:
        mean, entropy = all_gather(passes.probabilities), all_gather(passes.expected_entropy)
        assert mean is not None
        assert entropy is not None
        passes = StochasticPasses(mean, entropy)
    return Embedded(all_gather(shard.embeddings), all_gather(shard.logits), passes, shard.num_classes)


def gather_shards(trainer: Any, part: Tensor, size: int) -> Tensor:
    """One tensor of all ranks: the rows of their shards in the order of the pool, each point once."""
    if trainer.world_size == 1:
        return part
    shards = ranks_of(trainer).all_gather(part)  # (world, rows, ...)
    interleaved = shards.transpose(0, 1).reshape(-1, *part.shape[1:])[:size]
    return interleaved.contiguous()
