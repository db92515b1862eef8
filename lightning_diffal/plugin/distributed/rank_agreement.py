"""What all ranks must agree on, compared before any of them acts on it."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal.pool.dataset.fingerprint import Fingerprint


def check_same_dataset(trainer: Any, fingerprint: Fingerprint) -> None:
    """Refuse to start, on every rank, if one of them has another dataset."""
    rank = first_difference(trainer, fingerprint, lambda one, other: one.differs_from(other))
    if rank is not None:
        raise MisconfigurationException(
            f"Rank {rank} sees another training dataset than rank 0: their indices would name other points. Is "
            "data split or downloaded at random on each rank? A generator with a fixed seed splits alike."
        )


def check_same_start(trainer: Any, start: object) -> None:
    """Refuse a round, on every rank, if one of them starts from another checkpoint: it read the folder too early."""
    rank = first_difference(trainer, start)
    if rank is not None:
        raise RuntimeError(
            f"Rank {rank} does not start from the same round as rank 0: it read the folder of the run while another "
            "process wrote to it. Nothing was asked; start the run again."
        )


def check_same_choice(trainer: Any, indices: Sequence[int]) -> None:
    """Refuse a query, on every rank and before the oracle is asked, if one of them chose other points."""
    rank = first_difference(trainer, list(indices))
    if rank is not None:
        raise RuntimeError(
            f"Rank {rank} chose other points than rank 0. Every rank makes the same choice from the same embeddings: "
            "the selector must not depend on the rank, on unseeded random numbers or on the time. The generator "
            "passed to a selector is the same on all ranks."
        )


def first_difference(trainer: Any, value: Any, differ: Callable[[Any, Any], bool] = operator.ne) -> int | None:
    """The first rank whose value is not that of rank 0. One all-gather of a small object."""
    if trainer.world_size == 1:
        return None
    values: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(values, value)
    return next((rank for rank, theirs in enumerate(values) if differ(theirs, values[0])), None)
