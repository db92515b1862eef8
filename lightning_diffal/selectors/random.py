"""Random sampling: the baseline of every other selector."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import BatchSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class RandomSelector(BatchSelector):
    """Ask about any points, all equally likely: each batch of b of the u unlabeled ones with probability 1 / C(u, b).

    Needs nothing, and so costs no forward pass. Cost: O(n).
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        rows = sample_without_replacement(size, snapshot.num_unlabeled, generator, snapshot.labels.device)
        return Query.of(snapshot.unlabeled[rows])
