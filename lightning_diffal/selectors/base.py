"""The base classes of selectors, and the adapter that makes a selector of any callable."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import check_count, check_function, skip_type_check
from lightning_diffal.labels import UNLABELED
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.query import Query, take_lowest
from lightning_diffal.selectors.snapshot import Snapshot

# Called with the indices of points, returns their classes, as a tensor or as integers.
Answer: TypeAlias = Callable[[Tensor], Tensor | Iterable[int]]

# What a selector may need; nothing else is computed.
NEEDS = frozenset({"embeddings", "features", "logits", "stochastic"})


class Selector(ABC):
    """Chooses the points to ask about. A selector of your own implements `__call__`; the rest has defaults.

    A plain function `(snapshot, size) -> indices` may be given wherever a selector is expected: see `as_selector`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Let every selector refuse malformed arguments by name, without a line of its own for it."""
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            cls.__call__ = with_checked_arguments(cls.__call__)  # type: ignore[method-assign]

    @property
    def needs(self) -> frozenset[str]:
        """What is computed for the snapshot, of {"embeddings", "features", "logits", "stochastic"}."""
        return frozenset({"embeddings", "logits"})

    @property
    def passes(self) -> int | None:
        """How many stochastic forward passes, if it needs "stochastic"."""
        return None

    @property
    def asks_during_query(self) -> bool:
        """Whether it calls `answer`, and so may get labels before the query is complete."""
        return False

    def check_pool(self, num_points: int) -> None:
        """Raise a ValueError if this selector cannot choose from a pool of this size. Called before the first fit."""
        return

    @abstractmethod
    def __call__(
        self,
        snapshot: Snapshot,
        size: int,
        *,
        answer: Answer | None = None,
        generator: torch.Generator | None = None,
        timer: StageTimer | None = None,
    ) -> Query:
        """Choose `size` unlabeled points, or all if fewer are left.

        Args:
            answer: Gives the classes of chosen points during the query, by their indices.
            generator: The source of randomness, seeded by run and round. None means one seeded with 0.
            timer: Times the stages of the query and draws their progress.
        """


def with_checked_arguments(call: Callable[..., Any]) -> Callable[..., Any]:
    """A selector's `__call__` that says what is wrong with its arguments."""

    @wraps(call)
    @skip_type_check
    def checked(self: Selector, snapshot: Snapshot, size: int, *arguments: Any, **keywords: Any) -> Any:
        name = type(self).__name__
        if not isinstance(snapshot, Snapshot):
            raise ValueError(f"{name}(snapshot=...): a Snapshot is needed, {type(snapshot).__name__} was given.")
        check_count(name, "size", size)
        if keywords.get("answer") is not None:
            check_function(name, "answer", keywords["answer"])
        for keyword, kind in (("generator", torch.Generator), ("timer", StageTimer)):
            value = keywords.get(keyword)
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name}({keyword}={value!r:.60}): a {kind.__name__} is needed, or None.")
        return call(self, snapshot, size, *arguments, **keywords)

    return checked


class BatchSelector(Selector):
    """Chooses a batch as a whole. A selector of your own implements `select`, and declares what it `needs`."""

    @abstractmethod
    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        """Choose `size` of the unlabeled points, 1 ≤ size ≤ their number."""

    def __call__(
        self,
        snapshot: Snapshot,
        size: int,
        *,
        answer: Answer | None = None,
        generator: torch.Generator | None = None,
        timer: StageTimer | None = None,
    ) -> Query:
        size = min(size, snapshot.num_unlabeled)
        if size == 0:
            return Query.of(snapshot.unlabeled)
        generator = generator or torch.Generator(snapshot.labels.device).manual_seed(0)
        return self.select(snapshot, size, generator, timer or StageTimer())


class ScoreSelector(BatchSelector):
    """Asks where `score` is lowest. A selector of your own implements `score`, and declares what it `needs`."""

    @abstractmethod
    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        """A number for every point of the pool, labeled ones included; the lowest are asked first."""

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        scores = self.score(snapshot, timer)
        with timer.stage("query"):
            return take_lowest(scores, snapshot.unlabeled, size)


# What a user may pass as a selector. A function may return indices instead of a Query.
AnySelector: TypeAlias = Selector | Callable[..., Query | Tensor | Sequence[int]]


class CallableSelector(Selector):
    """A callable that is no `Selector`: the attributes it declares, and the defaults of the others."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        parameters = inspect.signature(function).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        self.keywords = {name for name in ("answer", "generator", "timer") if takes_all or name in parameters}

    @property
    @skip_type_check  # `as_selector` checks it
    def needs(self) -> frozenset[str]:
        needs: Any = getattr(self.function, "needs", super().needs)
        return cast("frozenset[str]", needs if isinstance(needs, str) else frozenset(needs))

    @property
    def passes(self) -> int | None:
        passes: int | None = getattr(self.function, "passes", None)
        return passes

    @property
    def asks_during_query(self) -> bool:
        return "answer" in self.keywords

    def check_pool(self, num_points: int) -> None:
        getattr(self.function, "check_pool", super().check_pool)(num_points)

    def __repr__(self) -> str:
        """The name of a function, the repr of another object."""
        name = getattr(self.function, "__qualname__", None)
        return repr(self.function) if name is None else f"{self.function.__module__}.{name}"

    def __call__(self, snapshot: Snapshot, size: int, **keywords: Any) -> Any:
        """A Query, or indices, which `choose` makes one of."""
        return self.function(snapshot, size, **{name: keywords.get(name) for name in self.keywords})


@skip_type_check
def as_selector(selector: AnySelector, caller: str = "as_selector") -> Selector:
    """The selector itself, or one that calls a function or another callable object.

    A callable is passed those of the keywords `answer`, `generator` and `timer` that its signature takes. Its `needs`,
    `passes` and `check_pool` are used if it has them.
    """
    if not callable(selector):
        raise ValueError(
            f"{caller}(selector={selector!r}): a selector or a function (snapshot, size) -> indices is needed."
        )
    result = selector if isinstance(selector, Selector) else CallableSelector(selector)
    if isinstance(result.needs, str) or not set(result.needs) <= NEEDS:
        raise ValueError(f"{selector!r}.needs is {result.needs!r}: a set of strings of {sorted(NEEDS)} is needed.")
    return result


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
    """Ask a selector for `size` points, or all that are left, and refuse anything but that many unlabeled ones."""
    size = min(size, snapshot.num_unlabeled)
    if size == 0:
        return Query.of(snapshot.labeled[:0])
    selector = as_selector(selector)
    given: Any = selector(snapshot, size, answer=answer, generator=generator, timer=timer)
    indices = as_indices(given.indices if isinstance(given, Query) else given, snapshot.labels.device)
    if indices is None:
        raise ValueError(
            f"selector={selector!r} returned {type(given).__name__}: a tensor or a list of {size} indices is needed, "
            "whole numbers, or a Query of them."
        )
    mistake = find_mistake(indices, size, snapshot.labels)
    if mistake is not None:
        raise ValueError(
            f"selector={selector!r} chose {mistake}: {size} different unlabeled points of the {len(snapshot.labels)} "
            "in the pool are needed."
        )
    return given if isinstance(given, Query) else Query.of(indices)


def find_mistake(indices: Tensor, size: int, labels: Tensor) -> str | None:
    """What is wrong with a choice, if anything."""
    if indices.shape != (size,):
        return f"{tuple(indices.shape)} indices"
    if not 0 <= int(indices.min()) <= int(indices.max()) < len(labels):
        return "an index outside the pool"
    if bool((labels[indices] != UNLABELED).any()):
        return "labeled points"
    return "points twice" if len(indices.unique()) != size else None


def as_indices(given: Any, device: torch.device) -> Tensor | None:
    """Whole numbers as a tensor; None if they are something else."""
    try:
        indices = torch.as_tensor(given, device=device)
    except (TypeError, ValueError, RuntimeError):
        return None
    whole = not (indices.dtype.is_floating_point or indices.dtype.is_complex or indices.dtype == torch.bool)
    return indices.long() if whole or indices.numel() == 0 else None
