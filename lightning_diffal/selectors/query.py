"""What a selector returns: the points to ask about."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Query:
    """The points to ask about, in the order they were chosen."""

    indices: Int[Tensor, " b"]
    scores: Float[Tensor, " b"]
    """The scores the points were chosen by, when they were chosen; lower comes first."""
    reached: Bool[Tensor, " b"]
    """Whether a label had reached the point: False explores, True refines."""
    unreached: int | None = None
    """How many unlabeled points no label had reached before this query; None where that is not counted."""

    def __len__(self) -> int:
        return len(self.indices)

    @staticmethod
    def of(indices: Int[Tensor, " b"], scores: Float[Tensor, " b"] | None = None) -> "Query":
        """A query of a selector that does not count reach. Scores are NaN where it has none."""
        if scores is None:
            scores = torch.full(indices.shape, float("nan"), device=indices.device)
        return Query(indices, scores, torch.ones_like(indices, dtype=torch.bool))

    @staticmethod
    def cat(parts: Sequence["Query"], unreached: int | None = None) -> "Query":
        """The concatenation of queries."""
        return Query(
            torch.cat([part.indices for part in parts]),
            torch.cat([part.scores for part in parts]),
            torch.cat([part.reached for part in parts]),
            unreached,
        )


def take_lowest(scores: Float[Tensor, " n"], unlabeled: Int[Tensor, " u"], size: int) -> Query:
    """The `size` unlabeled points with the lowest scores, lowest first; the lower index of equal ones."""
    size = min(size, len(unlabeled))
    if size == 0:
        return Query.of(unlabeled[:0], scores[:0])
    candidates = scores.index_select(0, unlabeled)
    # All that are as low as the last one, since topk picks any of equal ones.
    row = (candidates <= candidates.topk(size, largest=False).values[-1]).nonzero()[:, 0]
    row = row[candidates[row].argsort(stable=True)][:size]
    return Query.of(unlabeled[row], candidates[row])
