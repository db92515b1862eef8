"""Selectors that ask where a score is lowest."""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import Query
from lightning_diffal.selectors.snapshot import Snapshot


def take_lowest(scores: Float[Tensor, " n"], unlabeled: Int[Tensor, " u"], size: int) -> Query:
    """The `size` unlabeled points with the lowest scores, lowest first; the lower index of equal ones."""
    size = min(size, len(unlabeled))
    if size == 0:
        return Query.empty(scores)
    candidates = scores.index_select(0, unlabeled)
    # All that are as low as the last one, since topk picks among equal ones as it likes.
    place = (candidates <= candidates.topk(size, largest=False).values[-1]).nonzero()[:, 0]
    place = place[candidates[place].argsort(stable=True)][:size]
    return in_order(unlabeled[place], candidates[place])


def in_order(indices: Int[Tensor, " b"], scores: Float[Tensor, " b"]) -> Query:
    """A query of a selector that knows nothing of reach: it always refines."""
    return Query(indices, scores, torch.ones_like(indices, dtype=torch.bool))


class Scores(Protocol):
    """Who gives every point of the pool a number, the lower the sooner it should be asked."""

    @property
    def needs(self) -> frozenset[str]: ...

    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]: ...


class ScoreSelector(ABC):
    """Asks where `score` is lowest. A selector of your own needs `needs` and `score`."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]: ...

    @abstractmethod
    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        """A number for every point of the pool, labeled ones included; the lowest are asked first."""

    def __call__(self, snapshot: Snapshot, size: int, *, timer: StageTimer | None = None) -> Query:
        timer = timer or StageTimer()
        scores = self.score(snapshot, timer)
        with timer.stage("query"):
            return take_lowest(scores, snapshot.unlabeled, size)
