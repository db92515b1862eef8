"""Who chooses, and what is answered."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.labels import UNLABELED
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.snapshot import Snapshot

# Asked for the classes of points by their indices. They may come as a tensor or as a list of integers.
Answer: TypeAlias = Callable[[Tensor], Tensor | Iterable[int]]

# What a selector may say it needs; nothing else is computed.
NEEDS = frozenset({"embeddings", "logits", "stochastic"})


@dataclass(frozen=True, eq=False)
class Query:
    """The points to ask about, in the order they were chosen."""

    indices: Int[Tensor, " b"]
    scores: Float[Tensor, " b"]
    """What the choice was made by, when it was made; lower was chosen first."""
    reached: Bool[Tensor, " b"]
    """Whether a label had reached the point: False explores, True refines."""
    unreached: int | None = None
    """How many unlabeled points no label had reached before this query; None where that is not counted."""

    def __len__(self) -> int:
        return len(self.indices)

    @staticmethod
    def empty(like: Float[Tensor, "..."]) -> "Query":
        """No points, with scores of the type and device of `like`."""
        nothing = like.new_empty(0)
        return Query(nothing.long(), nothing, nothing.bool())

    @staticmethod
    def joined(parts: Sequence["Query"], unreached: int | None = None) -> "Query":
        """One query after another."""
        return Query(
            torch.cat([part.indices for part in parts]),
            torch.cat([part.scores for part in parts]),
            torch.cat([part.reached for part in parts]),
            unreached,
        )


@runtime_checkable
class Selector(Protocol):
    """Who chooses. A plain function `(snapshot, size) -> indices` is one too.

    `needs` names what is computed for it, of {"embeddings", "logits", "stochastic"}. The keywords are passed to those
    who take them: `answer` gives the classes of chosen points during the query, `generator` is seeded by run and round,
    `timer` draws a bar.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    def __call__(self, snapshot: Snapshot, size: int, *args: Any, **keywords: Any) -> Query: ...


# What a user may pass: the answer of a function need not be a whole Query.
AnySelector: TypeAlias = Selector | Callable[..., Query | Tensor | Sequence[int]]


def needs_of(selector: AnySelector) -> frozenset[str]:
    """What a selector says it needs; one that says nothing gets what a single pass gives."""
    needs = getattr(selector, "needs", {"embeddings", "logits"})
    if isinstance(needs, str) or not set(needs) <= NEEDS:
        raise ValueError(f"{selector!r}.needs is {needs!r}: a set of strings of {sorted(NEEDS)} is needed.")
    return frozenset(needs)


def parameters_of(selector: AnySelector) -> Mapping[str, inspect.Parameter]:
    """What a selector can be called with."""
    call = type(selector).__call__
    if not isinstance(call, FunctionType) or hasattr(selector, "__wrapped__"):
        return inspect.signature(selector).parameters
    return parameters_of_call(call)


@lru_cache
def parameters_of_call(call: FunctionType) -> Mapping[str, inspect.Parameter]:
    """Looked up once for a class, which takes as long as drawing a hundred points of ten thousand."""
    return inspect.signature(call).parameters


@skip_type_check
def choose(
    selector: AnySelector,
    snapshot: Snapshot,
    size: int,
    *,
    answer: Answer | None,
    generator: torch.Generator,
    timer: StageTimer,
) -> Query:
    """Ask a selector for `size` points, or all that are left, and refuse what is not that many unlabeled ones."""
    size = min(size, snapshot.num_unlabeled)
    if size == 0:
        return unscored(snapshot.labeled[:0])
    extras: dict[str, Any] = {"answer": answer, "generator": generator, "timer": timer}
    parameters = parameters_of(selector)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        extras = {name: value for name, value in extras.items() if name in parameters}
    given = selector(snapshot, size, **extras)
    indices = indices_of(given, snapshot.labels.device)
    if indices is None:
        raise ValueError(
            f"selector={selector!r} answered {type(given).__name__}: a tensor or a list of {size} indices is needed, "
            "whole numbers, or a Query of them."
        )
    places = indices.flatten().tolist()
    inside = not places or 0 <= min(places) <= max(places) < len(snapshot.labels)
    fresh = inside and set(snapshot.labels[indices].flatten().tolist()) <= {UNLABELED}
    if indices.shape != (size,) or not fresh or len(set(places)) != size:
        what = "an index outside the pool" if not inside else "labeled points" if not fresh else "points twice"
        what = f"{tuple(indices.shape)} indices" if indices.shape != (size,) else what
        raise ValueError(
            f"selector={selector!r} chose {what}: {size} different unlabeled points of the {len(snapshot.labels)} "
            f"in the pool are needed."
        )
    return given if isinstance(given, Query) else unscored(indices)


def indices_of(given: Any, device: torch.device) -> Tensor | None:
    """What a selector answered with, as whole numbers; None if it is something else."""
    named = given.indices if isinstance(given, Query) else given
    try:
        points = torch.as_tensor(named, device=device)
    except (TypeError, ValueError, RuntimeError):
        return None
    whole = not (points.dtype.is_floating_point or points.dtype.is_complex or points.dtype == torch.bool)
    return points.long() if whole or points.numel() == 0 else None


def unscored(indices: Int[Tensor, " b"]) -> Query:
    """A query of a selector that only names points."""
    nothing = torch.full(indices.shape, float("nan"), device=indices.device)
    return Query(indices, nothing, torch.ones_like(indices, dtype=torch.bool))
