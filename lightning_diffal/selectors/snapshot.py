"""What a selector is given: all that is known of the pool after a fit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.labels import UNLABELED, check_labels, refuse_other_than_probabilities
from lightning_diffal.numerics.precision import magnitude, surely_finite, times_two_to
from lightning_diffal.progress import StageTimer

Part = TypeVar("Part")

# Squares of numbers up to 2³⁰, or down to 2⁻³⁰, are far from the ends of float32, also when many are added up.
HANDY = 30


@dataclass(frozen=True, eq=False)
class StochasticPasses:
    """What several forward passes with only the dropout layers awake came to."""

    probabilities: Float[Tensor, "n c"]
    """The mean of the passes' softmax."""
    expected_entropy: Float[Tensor, " n"]
    """The mean of the passes' entropies, in nats."""

    def __post_init__(self) -> None:
        leave_gradients_behind(self, "probabilities", "expected_entropy")


@skip_type_check
@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """What is known of the pool after a fit: all a selector may look at. All tensors are on one device.

    It is checked here, once for all selectors: one row for each point, one column for each class, no NaN. What carries
    gradients is kept without them.
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
    ranks: Ranks = SINGLE_PROCESS
    """The processes that have this same snapshot and choose from it together. All must choose alike."""

    def __post_init__(self) -> None:
        leave_gradients_behind(self, "embeddings", "logits")
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
        return softmax(require(self.logits, "logits"))

    @property
    def points(self) -> Float[Tensor, "n d"]:
        """The embeddings, in float32 if they came in half precision, divided by 2 to the `exponent`."""
        return times_two_to(-self.exponent, in_full(require(self.embeddings, "embeddings")))

    @cached_property
    def exponent(self) -> int:
        """0, unless the embeddings are so large or small that their squares would overflow or vanish."""
        exponent = magnitude(in_full(require(self.embeddings, "embeddings")))
        return exponent if abs(exponent) > HANDY else 0

    def symmetric_graph(self, neighbors: int | None, timer: StageTimer) -> NeighborGraph:
        """The graph of the points, whole on every rank. Built once, however many selectors ask for it."""
        if neighbors not in self.graphs:
            with timer.stage("graph"):
                graph = build_graph(
                    require(self.embeddings, "embeddings"),
                    neighbors,
                    symmetric=True,
                    progress=timer.track,
                    ranks=self.ranks,
                )
            self.graphs[neighbors] = graph
        return self.graphs[neighbors]

    @cached_property
    def graphs(self) -> dict[int | None, NeighborGraph]:
        return {}


def leave_gradients_behind(parts: object, *names: str) -> None:
    for name in names:
        part = getattr(parts, name)
        if isinstance(part, Tensor) and part.requires_grad:
            object.__setattr__(parts, name, part.detach())  # frozen for others


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


def require(value: Part | None, name: str) -> Part:
    """A part of a snapshot that was asked for."""
    if value is None:
        raise ValueError(f"This snapshot has no {name}. A selector gets what it names in `needs`, a set of strings.")
    return value
