"""Random sampling: the baseline of every other selector."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import Answer, Selector, default_generator
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class RandomSelector(Selector):
    """Ask about any points, all equally likely: each batch of b among the u unlabeled ones with chance 1 / C(u, b).

    Needs nothing, and so costs no forward pass. Cost: O(n).
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(
        self,
        snapshot: Snapshot,
        size: int,
        *,
        answer: Answer | None = None,
        generator: torch.Generator | None = None,
        timer: StageTimer | None = None,
    ) -> Query:
        device = snapshot.labels.device
        rows = sample_without_replacement(size, snapshot.num_unlabeled, generator or default_generator(device), device)
        return Query.of(snapshot.unlabeled[rows])
