"""The first labels, before there is a model to choose by."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from lightning_diffal.arguments import check_count, check_integers, skip_type_check
from lightning_diffal.pool.dataset.classes import to_class
from lightning_diffal.pool.oracle import DatasetOracle
from lightning_diffal.pool.randomness import seed_of


@skip_type_check
@dataclass(frozen=True)
class PerClass:
    """First labels: `count` of every class. For simulations only: nobody knows the classes of unlabeled points."""

    count: int

    def __post_init__(self) -> None:
        check_count("PerClass", "count", self.count)


def draw_initial(
    initial: int | PerClass | Sequence[int], candidates: Sequence[int], oracle: object, seed: int
) -> list[int]:
    """The indices of the first labels: drawn by seed from the candidates, or those given."""
    generator = torch.Generator().manual_seed(seed_of(seed, 0))
    shuffled = [candidates[row] for row in torch.randperm(len(candidates), generator=generator).tolist()]
    if isinstance(initial, int):
        return sorted(shuffled[:initial])
    if isinstance(initial, PerClass):
        if not isinstance(oracle, DatasetOracle):
            raise ValueError(
                f"initial={initial!r}: the classes of unlabeled points are known in simulation only, not with oracle=. "
                "Use a count or a list of indices."
            )
        by_class: dict[int, list[int]] = {}
        for index, label in zip(shuffled, oracle(shuffled), strict=True):
            by_class.setdefault(label, []).append(index)
        few = {label: len(points) for label, points in by_class.items() if len(points) < initial.count}
        if few:
            raise ValueError(f"initial={initial!r}: class {min(few)} has only {few[min(few)]} points.")
        return sorted(index for points in by_class.values() for index in points[: initial.count])
    allowed = set(candidates)
    outside = [index for index in initial if index not in allowed]
    if outside:
        raise ValueError(f"initial=...: index {outside[0]} is not among the {len(candidates)} points of the pool.")
    return list(initial)


@skip_type_check
def check_initial(caller: str, initial: object, budget: int) -> int | PerClass | list[int]:
    """Refuse first labels that are not a count, `PerClass` or indices, or more than the budget."""
    if isinstance(initial, PerClass):
        return initial
    if isinstance(initial, int) and not isinstance(initial, bool) and initial >= 0:
        count, kept = initial, cast(int | list[int], initial)
    elif isinstance(initial, (Iterable, torch.Tensor)) and not isinstance(initial, (str, bytes)):
        if isinstance(initial, torch.Tensor):
            check_integers(caller, "initial", initial)
        try:
            points = [to_class(point) for point in initial]
        except TypeError as error:
            raise ValueError(f"{caller}(initial=...): indices are needed. {error}") from error
        count, kept = len(points), points
        if not points or min(points) < 0 or len(set(points)) != len(points):
            raise ValueError(f"{caller}(initial=...): different indices from 0 are needed, {points[:5]}... were given.")
    else:
        raise ValueError(
            f"{caller}(initial={initial!r}): a count of at least 0, PerClass(count) or a list of indices is needed."
        )
    if count > budget:
        raise ValueError(f"{caller}(initial=...): {count} first labels are more than the budget of {budget}.")
    return kept


def describe_initial(initial: int | PerClass | list[int]) -> str:
    """How the first labels were chosen, short enough for every line of a ledger."""
    if isinstance(initial, list):
        return f"{len(initial)} indices, {hashlib.sha256(repr(initial).encode()).hexdigest()[:8]}"
    return repr(initial)
