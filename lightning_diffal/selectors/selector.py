"""What a selector answers with."""

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
    """What the choice was made by, when it was made; lower was chosen first."""
    reached: Bool[Tensor, " b"]
    """Whether a label had reached the point: False explores, True refines."""

    def __len__(self) -> int:
        return len(self.indices)

    @staticmethod
    def empty(like: Float[Tensor, "..."]) -> "Query":
        """No points, with scores of the type and device of `like`."""
        nothing = like.new_empty(0)
        return Query(nothing.long(), nothing, nothing.bool())

    @staticmethod
    def joined(parts: Sequence["Query"]) -> "Query":
        """One query after another."""
        return Query(
            torch.cat([part.indices for part in parts]),
            torch.cat([part.scores for part in parts]),
            torch.cat([part.reached for part in parts]),
        )
