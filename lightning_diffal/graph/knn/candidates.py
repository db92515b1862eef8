"""What every backend returns."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

# Candidates beyond the neighbors and the point itself. More make fewer rows uncertain, and every row more expensive.
EXTRA_CANDIDATES = 3


class Candidates(NamedTuple):
    """The nearest points by the float32 arithmetic of a backend; `refine` makes exact neighbors of them."""

    rows: Int[Tensor, " r"]
    """The rows that this rank has searched. Every row is searched by exactly one rank."""
    neighbors: Int[Tensor, "r count"]
    """The nearest points of each, in no order, the row itself among them or not."""
    spread: Float[Tensor, " r"]
    """What the error of the distances grows with, see `search_error`."""
    recall: float | None = None
    """The fraction of the neighbors found, as far as a random sample tells; None for an exact search."""


class IncompleteResultError(RuntimeError):
    """A backend returned fewer neighbors than it was asked for."""
