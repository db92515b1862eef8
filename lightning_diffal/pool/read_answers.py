"""What an oracle returned, as one checked label for each point."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from lightning_diffal.pool.dataset.classes import describe
from lightning_diffal.pool.record import MAX_LABEL

Store = Callable[[Sequence[int], Sequence[int]], None]
# The class that an answer names; raises a TypeError or ValueError if it is not one.
Check = Callable[[Any], int]


class AnswersMismatchError(Exception):
    """Answers that belong to no points, as when there are too few of them. None of them is used."""


class RecordedAnswers(Iterator[Any]):
    """An iterator whose repr is what it has given so far."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self.answers, self.given = answers, list[Any]()

    def __next__(self) -> Any:
        self.given.append(next(self.answers))
        return self.given[-1]

    def __repr__(self) -> str:
        return repr(self.given)


def check_label(label: int, num_classes: int | None) -> int:
    """The label itself, refused if it is not one of the classes."""
    if not 0 <= label <= MAX_LABEL:
        raise ValueError(f"label {label} is not a class. One class for each, counted from 0, is needed.")
    if num_classes is not None and label >= num_classes:
        raise ValueError(
            f"label {label} is not one of the {num_classes} classes; num_classes= says how many there are. One class "
            "for each, counted from 0, is needed."
        )
    return label


def read_answers(given: Any, indices: Sequence[int], check: Check, store: Store) -> None:
    """Check and store the answers about points; the good ones are stored also if others are wrong.

    A mapping is read by index. A list, an array or a tensor has one answer for each point, in the order asked. What an
    iterator gives is stored answer by answer: if it fails at the tenth, nine are kept.

    Raises:
        AnswersMismatchError: The answers cannot be attributed to the points. None is to be used, also of those stored.
        TypeError, ValueError: Some are not classes, or missing. The others are stored.
    """
    if isinstance(given, Mapping):
        read_mapping(given, indices, check, store)
    elif isinstance(given, Iterator):
        read_one_by_one(given, indices, check, store)
    elif is_list(given):
        answers = list(given)
        if len(answers) != len(indices):
            raise AnswersMismatchError(
                f"it answered {len(answers)} labels, {answers[:5]!r:.200}... One class for each, counted from 0, is "
                "needed."
            )
        store_good_ones(indices, answers, check, store)
    else:
        raise AnswersMismatchError(
            f"it answered {describe(given)}. A list, a tensor, an array, an iterator or a dictionary by index is "
            "needed, with one class for each point."
        )


def read_mapping(given: Mapping[Any, Any], indices: Sequence[int], check: Check, store: Store) -> None:
    by_index = {int(index) if hasattr(index, "__index__") else index: label for index, label in given.items()}
    answered = [index for index in indices if index in by_index]
    store_good_ones(answered, [by_index[index] for index in answered], check, store)
    missing = [index for index in indices if index not in by_index]
    if missing:
        others = [index for index in by_index if index not in set(indices)]
        raise ValueError(
            f"it answered about {len(answered)} of them, there is no answer about {missing[:5]}..."
            + (f" It answered about {others[:5]}..., which were not asked about." if others else "")
        )


def read_one_by_one(given: Iterator[Any], indices: Sequence[int], check: Check, store: Store) -> None:
    wrong: list[tuple[int, Exception]] = []
    count = 0
    for index, answer in zip(indices, given, strict=False):
        count += 1
        try:
            label = check(answer)
        except (TypeError, ValueError) as error:
            wrong.append((index, error))
        else:
            store([index], [label])
    if count == len(indices) and next(given, given) is not given:
        raise AnswersMismatchError(f"it answered more than {count} labels. One class for each is needed.")
    refuse_wrong(wrong)
    if count < len(indices):
        raise ValueError(f"it answered {count} labels and ended. One class for each is needed; those are kept.")


def store_good_ones(indices: Sequence[int], answers: Iterable[Any], check: Check, store: Store) -> None:
    """Store the answers that are classes, all at once, then refuse the others by name."""
    good: dict[int, int] = {}
    wrong: list[tuple[int, Exception]] = []
    for index, answer in zip(indices, answers, strict=True):
        try:
            good[index] = check(answer)
        except (TypeError, ValueError) as error:
            wrong.append((index, error))
    if good:
        store(list(good), list(good.values()))
    refuse_wrong(wrong)


def refuse_wrong(wrong: list[tuple[int, Exception]]) -> None:
    if wrong:
        index, error = wrong[0]
        others = f" {len(wrong)} answers are wrong." if len(wrong) > 1 else ""
        raise type(error)(f"about point {index}: {error}{others} The other answers are kept.") from error


def is_list(given: Any) -> bool:
    """Whether it has a length and an order, and is not text."""
    if isinstance(given, (str, bytes, set, frozenset)):
        return False
    if isinstance(given, Tensor) or hasattr(given, "dtype"):
        return getattr(given, "ndim", 0) > 0
    return isinstance(given, Iterable) and hasattr(given, "__len__")
