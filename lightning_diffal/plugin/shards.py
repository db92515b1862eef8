"""Each rank reads its share of the pool, and all know the whole."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.plugin.embedding import Embedded
from lightning_diffal.selectors.snapshot import StochasticPasses


def rows_of_rank(rows: Sequence[int], rank: int, world: int) -> list[int]:
    """Row (rank + j · world) mod n for j < ⌈n / world⌉: as many on every rank, or collectives would wait forever."""
    share = -(-len(rows) // world)
    return [rows[(rank + place * world) % len(rows)] for place in range(share)]


def ranks_of(trainer: Any) -> Ranks:
    """The processes of this Trainer, as far as torch.distributed knows them."""
    return SINGLE_PROCESS if trainer.world_size == 1 else Ranks.of_group()


def gathered(trainer: Any, seen: Embedded, size: int) -> Embedded:
    """The shares of all ranks in the order of the rows, each row once."""
    if trainer.world_size == 1:
        return seen

    def whole(part: Tensor | None) -> Tensor | None:
        if part is None:
            return None
        shares = trainer.strategy.all_gather(part)  # (world, share, ...)
        together: Tensor = shares.transpose(0, 1).reshape(-1, *part.shape[1:])[:size]
        return together.contiguous()

    passes = seen.stochastic
    if passes is not None:
        mean, entropy = whole(passes.probabilities), whole(passes.expected_entropy)
        assert mean is not None
        assert entropy is not None
        passes = StochasticPasses(mean, entropy)
    return Embedded(whole(seen.embeddings), whole(seen.logits), passes, seen.num_classes)
