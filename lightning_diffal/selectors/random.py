"""Chance: what every other selector must beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from lightning_diffal.selectors.draw import some
from lightning_diffal.selectors.score import in_order
from lightning_diffal.selectors.selector import Query, Snapshot


@dataclass(frozen=True, kw_only=True)
class RandomSelector:
    """Ask about any points, all equally likely. Needs nothing and so costs no forward pass."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, snapshot: Snapshot, size: int, *, generator: torch.Generator) -> Query:
        unlabeled = snapshot.unlabeled
        chosen = some(size, len(unlabeled), generator, unlabeled.device)
        return in_order(unlabeled[chosen], torch.full(chosen.shape, float("nan"), device=chosen.device))
