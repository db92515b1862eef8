"""What a selector is given, and what it answers with."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import checks_its_arguments
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.graph.precision import surely_finite
from lightning_diffal.labels import UNLABELED, check_labels, refuse_other_than_probabilities
from lightning_diffal.ranks import ALONE, Ranks
from lightning_diffal.watch import Watch

# Asked for the classes of points by their indices. They may come as a tensor or as a list of integers.
Answer: TypeAlias = Callable[[Tensor], Tensor | Iterable[int]]

Part = TypeVar("Part")

# What a selector may say it needs; nothing else is computed.
NEEDS = frozenset({"embeddings", "logits", "stochastic"})


@dataclass(frozen=True, eq=False)
class StochasticPasses:
    """What several forward passes with only the dropout layers awake came to."""

    probabilities: Float[Tensor, "n c"]
    """The mean of the passes' softmax."""
    expected_entropy: Float[Tensor, " n"]
    """The mean of the passes' entropies, in nats."""


@checks_its_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """What is known of the pool after a fit: all a selector may look at. All tensors are on one device.

    It is checked here, once for all selectors: one row for each point, one column for each class, no NaN.
    """

    labels: Int[Tensor, " n"]
    """The class of each point, -1 where nobody has said it."""
    num_classes: int
    embeddings: Float[Tensor, "n d"] | None = None
    """The penultimate layer of the network, if the selector needs "embeddings"."""
    logits: Float[Tensor, "n c"] | None = None
    """What the classifier says before the softmax, if the selector needs "logits". They are taken as logits whatever
    their values; -inf rules a class out."""
    stochastic: StochasticPasses | None = None
    """The same from passes with dropout, if the selector needs "stochastic"."""
    queries_before: int = 0
    """How many queries this run has made."""
    ranks: Ranks = ALONE
    """The processes that have this same snapshot and choose from it together. All must choose alike."""

    def __post_init__(self) -> None:
        check_labels("Snapshot", self.labels, len(self.labels), self.num_classes, self.labels.device)
        if self.embeddings is not None:
            self.check_rows("embeddings", self.embeddings, None)
            refuse_rows("embeddings", self.embeddings, all_finite)
        if self.logits is not None:
            self.check_rows("logits", self.logits, self.num_classes)
            # A softmax is NaN where a logit is NaN or +inf, and where all of them are -inf.
            refuse_rows("logits", self.logits, lambda logits: logits.amax(dim=1).isfinite())
        if self.stochastic is not None:
            self.check_rows("stochastic.probabilities", self.stochastic.probabilities, self.num_classes)
            refuse_rows("stochastic.probabilities", self.stochastic.probabilities, all_finite)
            refuse_other_than_probabilities("Snapshot", "stochastic.probabilities", self.stochastic.probabilities)
            expected_entropy = self.stochastic.expected_entropy[:, None]
            self.check_rows("stochastic.expected_entropy", expected_entropy, 1)
            refuse_rows("stochastic.expected_entropy", expected_entropy, all_finite)

    def check_rows(self, name: str, part: Tensor, width: int | None) -> None:
        """Refuse a part that is not one row of numbers for each label, on the same device."""
        fits = part.ndim == 2 and len(part) == len(self.labels) and (width is None or part.shape[1] == width)
        if not fits or part.shape[1] == 0 or not part.dtype.is_floating_point:
            raise ValueError(
                f"Snapshot({name}=...): {len(self.labels)} labels need floating-point numbers of shape "
                f"({len(self.labels)}, {width or 'd'}), {part.dtype} of shape {tuple(part.shape)} was given."
            )
        if part.device != self.labels.device:
            raise ValueError(f"Snapshot({name}=...): they are on {part.device}, the labels on {self.labels.device}.")

    @cached_property
    def labeled(self) -> Int[Tensor, " l"]:
        return (self.labels != UNLABELED).nonzero().flatten()

    @cached_property
    def unlabeled(self) -> Int[Tensor, " u"]:
        return (self.labels == UNLABELED).nonzero().flatten()

    @cached_property
    def num_unlabeled(self) -> int:
        return len(self.labels) - len(self.labeled)

    def unlabeled_at(self, places: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        """`unlabeled[places]`, without a list of them all: there are many, and few labeled ones to step over."""
        unlabeled_before = self.labeled - torch.arange(len(self.labeled), device=self.labels.device)
        return places + torch.searchsorted(unlabeled_before, places, right=True)

    @property
    def probabilities(self) -> Float[Tensor, "n c"]:
        return softmax(have(self.logits, "logits"))

    @property
    def points(self) -> Float[Tensor, "n d"]:
        """The embeddings, in float32 if they came in half precision."""
        return in_full(have(self.embeddings, "embeddings"))

    def symmetric_graph(self, neighbors: int | None, watch: Watch) -> NeighborGraph:
        """The graph of the points, whole on every rank. Built once, however many selectors ask for it."""
        if neighbors not in self.graphs:
            with watch.stage("graph"):
                graph = build_graph(
                    self.points, neighbors, symmetric=True, progress=watch.counted, ranks=self.ranks
                ).gathered()
            self.graphs[neighbors] = graph
        return self.graphs[neighbors]

    @cached_property
    def graphs(self) -> dict[int | None, NeighborGraph]:
        return {}


def all_finite(part: Float[Tensor, "n m"]) -> Bool[Tensor, " n"]:
    return part.isfinite().all(dim=1)


def refuse_rows(
    name: str, part: Float[Tensor, "n m"], right: Callable[[Float[Tensor, "n m"]], Bool[Tensor, " n"]]
) -> None:
    if surely_finite(part):
        return
    rows = (~right(part)).nonzero()[:, 0]
    if len(rows):
        raise ValueError(
            f"Snapshot({name}=...): {len(rows)} of {len(part)} rows hold NaN or infinity, the first is row "
            f"{int(rows[0])}. Did the training diverge, or a half-precision layer overflow?"
        )


def in_full(value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


def softmax(logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    return in_full(logits).softmax(dim=1)


def have(value: Part | None, name: str) -> Part:
    """A part of a snapshot that was asked for."""
    if value is None:
        raise ValueError(f"This snapshot has no {name}. A selector gets what it names in `needs`, a set of strings.")
    return value


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
    `watch` draws a bar.
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


@checks_its_arguments
def choose(
    selector: AnySelector,
    snapshot: Snapshot,
    size: int,
    *,
    answer: Answer | None,
    generator: torch.Generator,
    watch: Watch,
) -> Query:
    """Ask a selector for `size` points, or all that are left, and refuse what is not that many unlabeled ones."""
    size = min(size, snapshot.num_unlabeled)
    if size == 0:
        return unscored([], snapshot)
    extras: dict[str, Any] = {"answer": answer, "generator": generator, "watch": watch}
    parameters = parameters_of(selector)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        extras = {name: value for name, value in extras.items() if name in parameters}
    given = selector(snapshot, size, **extras)
    query = given if isinstance(given, Query) else unscored(given, snapshot)
    indices, places = query.indices, query.indices.flatten().tolist()
    inside = not places or 0 <= min(places) <= max(places) < len(snapshot.labels)
    fresh = inside and set(snapshot.labels[indices].flatten().tolist()) <= {UNLABELED}
    if indices.shape != (size,) or not fresh or len(set(places)) != size:
        what = "an index outside the pool" if not inside else "labeled points" if not fresh else "points twice"
        what = f"{tuple(indices.shape)} indices" if indices.shape != (size,) else what
        raise ValueError(
            f"selector={selector!r} chose {what}: {size} different unlabeled points of the {len(snapshot.labels)} "
            f"in the pool are needed."
        )
    return query


def unscored(indices: Tensor | Sequence[int], snapshot: Snapshot) -> Query:
    """A query of a selector that only names points."""
    points = torch.as_tensor(indices, device=snapshot.labels.device)
    points = points.long() if len(points) == 0 or not points.dtype.is_floating_point else points
    nothing = torch.full(points.shape, float("nan"), device=points.device)
    return Query(points, nothing, torch.ones_like(points, dtype=torch.bool))
