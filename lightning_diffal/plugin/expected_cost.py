"""Time and memory of a query, said before its work begins."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Final

import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor

from lightning_diffal.distributed import SINGLE_PROCESS
from lightning_diffal.graph.knn.nearest_neighbors import default_neighbors
from lightning_diffal.graph.neighbor_graph import build_graph
from lightning_diffal.plugin.memory import available_memory
from lightning_diffal.plugin.model.embedding import HALF_ABOVE, Embedded
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import CallableSelector, Selector, choose
from lightning_diffal.selectors.snapshot import Snapshot, StochasticPasses

# Less is not worth a line.
SECONDS_WORTH_SAYING: Final = 30.0
# Points of the first trial of a selector; each further one has four times as many.
FIRST_TRIAL, FACTOR = 2_000, 4
# Of a trial at least: the first choice of a query has work that the others have not.
CHOICES: Final = 20
# Trials end when the next one would take more than this share of what is expected.
TRIAL_SHARE: Final = 0.03
# How times may grow with the pool: stages no less than it and no more than all pairs; a choice no more than it, and no
# less than its root, since in small trials what does not grow hides what does.
GROWTH: Final = {"pool": (1.0, 2.0), "choice": (0.5, 1.0)}
# Smaller pools are searched in seconds: points, and points² · dimensions.
MANY_POINTS, MANY_PRODUCTS = 200_000, 10**12


class BatchTimer(StageTimer):
    """Notes when each batch of a pass was done."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    def advance(self) -> None:
        self.moments.append(perf_counter())

    def seconds_per_batch(self) -> float | None:
        """The median, without the first, in which workers start and torch sets itself up."""
        gaps = [after - before for before, after in pairwise(self.moments)]
        return median(gaps) if gaps else None


def say_cost_of_embedding(
    points: int, batch_size: int, world: int, embedded: Embedded, timer: BatchTimer, neighbors: int | None
) -> None:
    """One line before the first fit where each round's pass over the pool takes long, or a warning if memory is short.

    Args:
        points: That a query sees.
        embedded: Of the dry run, whose batches were timed.
    """
    each = timer.seconds_per_batch()
    seconds = 0.0 if each is None else each * math.ceil(math.ceil(points / world) / batch_size)
    need = memory_needed(points, embedded, neighbors)
    free = available_memory()
    if free is not None and need > free:
        rank_zero_warn(
            f"A query over {points:,} points needs about {gib(need)} of memory, and {gib(free)} are free. "
            "candidates=... lets a query see fewer points; layer=... names a layer with fewer dimensions."
        )
    elif seconds >= SECONDS_WORTH_SAYING:
        rank_zero_info(
            f"Active learning: each round passes {points:,} points through the model, about {duration(seconds)}, and "
            f"needs about {gib(need)} of memory{'' if free is None else f' of {gib(free)} that are free'}."
        )


def memory_needed(points: int, embedded: Embedded, neighbors: int | None) -> int:
    """Bytes of embeddings and logits, and of the graph while it is built, by the formula of `build_graph`.

    For the approximate graph of a million points of 512 dimensions it says 12 GiB; the process took 9.8 GiB at most.
    """
    d = 0 if embedded.embeddings is None else embedded.embeddings.shape[1]
    c = 0 if embedded.logits is None else embedded.logits.shape[1]
    bytes_each = 2 if points * d > HALF_ABOVE else 4
    kept = points * (bytes_each * d + 4 * c)
    if d == 0:
        return kept
    k = neighbors or default_neighbors(points)
    return kept + points * (60 * (k + 5) + 20 * d) + 300 * 2**20


def say_cost_of_choice(selector: Selector, snapshot: Snapshot, size: int, last: Mapping[str, float]) -> None:
    """One line before the graph is built and points are chosen, where that takes long.

    Args:
        last: Seconds of the stages of the last round, if there was one: this one takes about as long.
    """
    seconds = {name: value for name, value in last.items() if name not in ("fit", "embedding", "features", "reduction")}
    if not seconds and is_large(snapshot) and has_stages(selector):
        seconds = expected_seconds(selector, snapshot, size)
    if sum(seconds.values()) >= SECONDS_WORTH_SAYING:
        stages = ", ".join(f"{name} {duration(value)}" for name, value in seconds.items() if value >= 1)
        rank_zero_info(
            f"Active learning: choosing {size:,} of {len(snapshot.labels):,} points takes about "
            f"{duration(sum(seconds.values()))} ({stages})."
        )


def is_large(snapshot: Snapshot) -> bool:
    n, d = len(snapshot.labels), max((part.shape[1] for part in points_of(snapshot)), default=0)
    return n >= MANY_POINTS or n * n * d >= MANY_PRODUCTS


def points_of(snapshot: Snapshot) -> list[Tensor]:
    return [part for part in (snapshot.embeddings, snapshot.features) if part is not None]


def has_stages(selector: Selector) -> bool:
    """Whether a selector may be tried out: one of this library, which changes nothing when it is called."""
    return not isinstance(selector, CallableSelector) and type(selector).__module__.startswith("lightning_diffal.")


def expected_seconds(selector: Selector, snapshot: Snapshot, size: int) -> dict[str, float]:
    """Seconds of each stage, by trials on random points with as large a share of labels and of choices.

    The stage "query" is taken to grow with the choices, and each of them with some power of the pool between ½ and 1;
    the others with a power of the pool between 1 and 2. Powers are those between the last two trials.

    Cost: 4 to 20% of the query it was measured on (docs/speed.md), once in a run.
    """
    n, points = len(snapshot.labels), FIRST_TRIAL
    trials: list[tuple[int, int, dict[str, float]]] = []
    expected: dict[str, float] = {}
    while points <= n // 2:
        asked = max(min(size, CHOICES), round(size * points / n))
        trials.append((points, asked, seconds_of_trial(selector, snapshot, points, asked)))
        if len(trials) > 1:
            expected = extrapolate(trials[-2], trials[-1], n, size, snapshot.ranks.world)
            # The next one has four times as many points, and takes up to 16 times as long.
            if 8 * sum(trials[-1][2].values()) > TRIAL_SHARE * sum(expected.values()):
                break
        points *= FACTOR
    return expected


def seconds_of_trial(selector: Selector, snapshot: Snapshot, points: int, asked: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(snapshot.labels), generator=generator)[:points].sort().values.to(snapshot.labels.device)
    timer = StageTimer()
    start = perf_counter()
    # Answers are predicted: no oracle is asked for a trial.
    choose(
        selector,
        sample_of(snapshot, rows),
        asked,
        answer=None,
        generator=torch.Generator(snapshot.labels.device).manual_seed(0),
        timer=timer,
    )
    whole = perf_counter() - start
    rest = whole - sum(timer.seconds.values())
    return {**timer.seconds, "query": timer.seconds.get("query", 0.0) + rest}


def sample_of(snapshot: Snapshot, rows: Tensor) -> Snapshot:
    """The same of some points, for one process."""
    passes = snapshot.stochastic
    if passes is not None:
        passes = StochasticPasses(passes.probabilities[rows], passes.expected_entropy[rows])
    return replace(
        snapshot,
        labels=snapshot.labels[rows],
        embeddings=None if snapshot.embeddings is None else snapshot.embeddings[rows],
        features=None if snapshot.features is None else snapshot.features[rows],
        logits=None if snapshot.logits is None else snapshot.logits[rows],
        stochastic=passes,
        ranks=SINGLE_PROCESS,
        build_feature_graph=build_graph,
    )


def extrapolate(
    smaller: tuple[int, int, dict[str, float]], larger: tuple[int, int, dict[str, float]], n: int, size: int, world: int
) -> dict[str, float]:
    """Seconds of the stages with n points and `size` choices, from two trials (points, choices, seconds)."""
    expected = {}
    for stage, seconds in larger[2].items():
        of_choice = stage == "query"
        before, after = smaller[2].get(stage, seconds), seconds
        if of_choice:
            before, after = before / smaller[1], after / larger[1]
        low, high = GROWTH["choice" if of_choice else "pool"]
        power = math.log(max(after, 1e-9) / max(before, 1e-9)) / math.log(larger[0] / smaller[0])
        grown = after * (n / larger[0]) ** min(max(power, low), high)
        expected[stage] = grown * (size if of_choice else 1) / (world if stage == "graph" else 1)
    return expected


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
