"""Chance: what every other selector must beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.selectors.base import Query
from lightning_diffal.selectors.score import in_order
from lightning_diffal.selectors.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class RandomSelector:
    """Ask about any points, all equally likely: each batch of b among the u unlabeled ones with chance 1 / C(u, b).

    Needs nothing, and so costs no forward pass. Cost: one look at the labels.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, snapshot: Snapshot, size: int, *, generator: torch.Generator) -> Query:
        places = sample_without_replacement(size, snapshot.num_unlabeled, generator, snapshot.labels.device)
        return in_order(snapshot.unlabeled_at(places), torch.full(places.shape, float("nan"), device=places.device))
