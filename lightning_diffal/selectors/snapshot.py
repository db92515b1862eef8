"""What a selector is given: labels, embeddings and model outputs of the pool after a fit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import (
    check_finite,
    check_floats,
    check_integers,
    check_matrix,
    finite_rows,
    skip_type_check,
)
from lightning_diffal.diffusion.graph_against_models import ModelPredictions
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.labels import UNLABELED, check_labels, check_probabilities
from lightning_diffal.numerics.precision import at_least_float32, ldexp, max_exponent
from lightning_diffal.progress import StageTimer

Part = TypeVar("Part")

# Squares of numbers up to 2³⁰, or down to 2⁻³⁰, are far from the ends of float32, also when many are added up.
SAFE_EXPONENT = 30


@dataclass(frozen=True, eq=False)
class StochasticPasses:
    """Means over several forward passes with only the dropout layers active."""

    probabilities: Float[Tensor, "n c"]
    """The mean of the passes' softmax."""
    expected_entropy: Float[Tensor, " n"]
    """The mean of the passes' entropies, in nats."""

    def __post_init__(self) -> None:
        detach_fields(self, "probabilities", "expected_entropy")


@skip_type_check
@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """What is known of the pool after a fit, which is all a selector sees. All tensors are on one device.

    It is checked here, once for all selectors: one row for each point, one column for each class, no NaN. Tensors are
    detached.
    """

    labels: Int[Tensor, " n"]
    """The class of each point, -1 where unlabeled."""
    num_classes: int
    embeddings: Float[Tensor, "n d"] | None = None
    """The penultimate layer of the network, if the selector needs "embeddings"."""
    features: Float[Tensor, "n f"] | None = None
    """Fixed features of the points, the same in every round, if the selector needs "features" and there are any."""
    logits: Float[Tensor, "n c"] | None = None
    """The classifier's output before the softmax, if the selector needs "logits". They are taken as logits whatever
    their values; -inf excludes a class."""
    stochastic: StochasticPasses | None = None
    """Means over passes with dropout, if the selector needs "stochastic"."""
    queries_before: int = 0
    """How many queries this run has made."""
    ranks: Ranks = SINGLE_PROCESS
    """The processes that share the neighbor search of `build_graph`, each with this same snapshot."""
    build_feature_graph: Callable[..., NeighborGraph] = build_graph
    """Makes the graph of the features, with the arguments of `build_graph`: the callback's keeps it over the rounds."""
    earlier: ModelPredictions | None = None
    """What models of earlier rounds said of points before these were labeled."""

    def __post_init__(self) -> None:
        detach_fields(self, "embeddings", "features", "logits")
        check_integers("Snapshot", "labels", self.labels, f" Unlabeled is {UNLABELED}.")
        if self.labels.ndim != 1:
            raise ValueError(
                f"Snapshot(labels=...): one label for each point, shape (n,), is needed, {tuple(self.labels.shape)} "
                "was given."
            )
        if isinstance(self.queries_before, bool) or not isinstance(self.queries_before, int) or self.queries_before < 0:
            raise ValueError(f"Snapshot(queries_before={self.queries_before!r}): a whole number from 0 is needed.")
        check_labels("Snapshot", self.labels, len(self.labels), self.num_classes, self.labels.device)
        rows, device = len(self.labels), self.labels.device
        for name, points in (("embeddings", self.embeddings), ("features", self.features)):
            if points is not None:
                check_matrix("Snapshot", name, points, rows, None, device)
                check_finite("Snapshot", name, finite_rows(points))
        if self.logits is not None:
            check_matrix("Snapshot", "logits", self.logits, rows, self.num_classes, device)
            # A softmax is NaN where a logit is NaN or +inf, and where all of them are -inf.
            check_finite("Snapshot", "logits", self.logits.amax(dim=1).isfinite())
        if self.stochastic is not None:
            if not isinstance(self.stochastic, StochasticPasses):
                given = type(self.stochastic).__name__
                raise ValueError(f"Snapshot(stochastic=...): StochasticPasses are needed, {given} was given.")
            mean, entropy = self.stochastic.probabilities, self.stochastic.expected_entropy
            check_probabilities("Snapshot", "stochastic.probabilities", mean, rows, self.num_classes, device)
            check_floats("Snapshot", "stochastic.expected_entropy", entropy)
            check_matrix("Snapshot", "stochastic.expected_entropy", entropy[:, None], rows, 1, device)
            check_finite("Snapshot", "stochastic.expected_entropy", entropy.isfinite())

    @cached_property
    def labeled(self) -> Int[Tensor, " l"]:
        return (self.labels != UNLABELED).nonzero().flatten()

    @cached_property
    def unlabeled(self) -> Int[Tensor, " u"]:
        return (self.labels == UNLABELED).nonzero().flatten()

    @property
    def num_unlabeled(self) -> int:
        return len(self.unlabeled)

    @property
    def probabilities(self) -> Float[Tensor, "n c"]:
        return at_least_float32(require(self.logits, "logits")).softmax(dim=1)

    @property
    def points(self) -> Float[Tensor, "n d"]:
        """The embeddings, in float32 if they came in half precision, divided by 2 to the `exponent`."""
        return self.scaled_points("embeddings")[0]

    @cached_property
    def exponent(self) -> int:
        """0, unless the embeddings are so large or small that their squares would overflow or vanish."""
        return safe_exponent(require(self.embeddings, "embeddings"))

    def scaled_points(self, on: Literal["embeddings", "features"]) -> tuple[Float[Tensor, "n d"], int]:
        """Points divided by 2 to the exponent, and that: the embeddings, or the features (see `fixed_points`)."""
        points = require(self.embeddings, "embeddings") if on == "embeddings" else self.fixed_points
        exponent = self.exponent if points is self.embeddings else safe_exponent(points)
        return ldexp(at_least_float32(points), -exponent), exponent

    @property
    def fixed_points(self) -> Float[Tensor, "n f"]:
        """The fixed features; the embeddings where there are none."""
        return require(self.embeddings if self.features is None else self.features, "features")

    def feature_graph(self, neighbors: int | None, timer: StageTimer) -> NeighborGraph:
        """The directed graph of the fixed features, or of the embeddings. Built once, however many need it."""
        key = ("features", neighbors)
        if key not in self.graphs:
            build = build_graph if self.features is None else self.build_feature_graph
            # These selectors have no argument for the search, so that theirs is exact in pools of any size.
            options = {"backend": "exact", "ranks": self.ranks}
            self.graphs[key] = timed_graph(timer, build, self.fixed_points, neighbors, **options)
        return self.graphs[key]

    def symmetric_graph(self, neighbors: int | None, timer: StageTimer) -> NeighborGraph:
        """The symmetric graph of the embeddings. Built once, however many selectors need it."""
        key = ("embeddings", neighbors)
        if key not in self.graphs:
            embeddings = require(self.embeddings, "embeddings")
            options = {"backend": "exact", "symmetric": True, "ranks": self.ranks}
            self.graphs[key] = timed_graph(timer, build_graph, embeddings, neighbors, **options)
        return self.graphs[key]

    @cached_property
    def graphs(self) -> dict[tuple[str, int | None], NeighborGraph]:
        return {}


def timed_graph(
    timer: StageTimer,
    build: Callable[..., NeighborGraph],
    points: Float[Tensor, "n d"],
    neighbors: int | None,
    **options: Any,
) -> NeighborGraph:
    """A graph as the stage "graph" of a query. The recall of an approximate one is kept in the record."""
    with timer.stage("graph"):
        graph = build(points, neighbors, progress=timer.track, **options)
    if graph.recall is not None:
        timer.metrics["graph_recall"] = graph.recall
    return graph


def safe_exponent(points: Float[Tensor, "n d"]) -> int:
    exponent = max_exponent(at_least_float32(points))
    return exponent if abs(exponent) > SAFE_EXPONENT else 0


def detach_fields(parts: object, *names: str) -> None:
    for name in names:
        part = getattr(parts, name)
        if isinstance(part, Tensor) and part.requires_grad:
            object.__setattr__(parts, name, part.detach())  # the dataclass is frozen


def require(value: Part | None, name: str) -> Part:
    """A part of a snapshot that must be there."""
    if value is None:
        raise ValueError(f"This snapshot has no {name}. A selector gets what it names in `needs`, a set of strings.")
    return value
