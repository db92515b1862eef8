"""What the lines of a ledger say together: whether each can follow those before it, and the rounds they make up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lightning_diffal.pool.dataset.fingerprint import size_of
from lightning_diffal.pool.record import Answered, Correction, Entry, Record


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What all rounds of one run have in common. Budget and query size may change during a run."""

    selector: str
    seed: int
    initial: str
    features: str | None = None
    """Where the fixed features come from, None if there are none."""
    dataset: str | None = None
    """The dataset's fingerprint; None before it is known, and then not compared."""

    @staticmethod
    def of(record: Record) -> "RunIdentity":
        return RunIdentity(
            selector=record.selector,
            seed=record.seeds["run"],
            initial=record.initial,
            features=record.features,
            dataset=record.dataset,
        )

    def check(self, record: Record, number: int) -> None:
        """Refuse a record that is not round `number` of this run."""
        if record.round != number:
            raise ValueError(f"round {record.round} where round {number} was expected: a line is missing or doubled.")
        if self.dataset is not None and record.dataset != self.dataset:
            raise ValueError(other_dataset("this run was made", record.dataset, self.dataset))
        theirs = {
            "selector": record.selector,
            "seed": record.seeds["run"],
            "initial": record.initial,
            "features": record.features,
        }
        for name, value in theirs.items():
            ours = getattr(self, name)
            if value != ours:
                raise ValueError(
                    f"this is the ledger of another run, with {name}={value!r} where {name}={ours!r} is given. "
                    "Give this run a folder of its own, folder=..., or remove the old one."
                )


def other_dataset(what: str, theirs: str, ours: str) -> str:
    return (
        f"{what} on another dataset (fingerprint {theirs}, now {ours}). Its indices would name other points. "
        "Was the data split again? A generator with a fixed seed keeps a split."
    )


class EntryCheck:
    """Whether each line of a ledger can follow those before it."""

    def __init__(self, identity: RunIdentity) -> None:
        self.identity = identity
        self.asked: list[set[int]] = []
        """The points of each round."""
        self.labels: dict[int, int] = {}
        self.open = False
        """Whether the last round has been asked and not answered."""

    def __call__(self, entry: Entry) -> None:
        if isinstance(entry, Record):
            self.check_record(entry)
        elif isinstance(entry, Answered):
            self.check_answers(entry)
        else:
            self.check_correction(entry)
        self.labels.update(zip(*labels_of(entry), strict=True))

    def check_record(self, record: Record) -> None:
        self.identity.check(record, len(self.asked))
        if self.open:
            raise ValueError(f"round {record.round - 1} has been asked and has no answers: a line is missing.")
        if record.labeled != len(self.labels):
            raise ValueError(
                f"labeled must be {len(self.labels)}, the number of labels in the lines before, it is {record.labeled}."
            )
        check_points(record.indices, self.labels, size_of(record.dataset))
        self.asked.append(set(record.indices))
        self.open = record.is_question

    def check_answers(self, answered: Answered) -> None:
        if answered.round >= len(self.asked):
            raise ValueError(f"answers to round {answered.round}, which has not been asked.")
        points = [*answered.indices, *answered.skipped, *answered.cannot_tell]
        strange = [index for index in points if index not in self.asked[answered.round]]
        if strange:
            raise ValueError(f"point {strange[0]} was not asked about in round {answered.round}.")
        check_points(points, self.labels, None)
        self.open = self.open and answered.round != len(self.asked) - 1

    def check_correction(self, correction: Correction) -> None:
        unknown = [index for index in correction.indices if index not in self.labels]
        if unknown:
            raise ValueError(f"point {unknown[0]} has no label that could be corrected.")
        if correction.was != [self.labels[index] for index in correction.indices]:
            raise ValueError("was must be the labels before, as the lines before have them.")


def labels_of(entry: Entry) -> tuple[list[int], list[int]]:
    """The points that a line has labels of, and these."""
    known = [pair for pair in zip(entry.indices, entry.labels, strict=True) if pair[1] is not None]
    return [index for index, _ in known], [label for _, label in known if label is not None]


def check_points(indices: Sequence[int], known: Mapping[int, int], size: int | None) -> None:
    """Refuse points outside the pool, points twice and points that have a label already."""
    outside = [index for index in indices if index < 0 or (size is not None and index >= size)]
    if outside:
        raise ValueError(f"index {outside[0]} is out of range: the pool has {size} points, counted from 0.")
    again = [index for index in indices if index in known]
    if again:
        raise ValueError(f"point {again[0]} has a label already, {known[again[0]]}. Labels are never asked twice.")
    if len(set(indices)) != len(indices):
        raise ValueError("a point is named twice.")


def without_corrections(entries: Sequence[Entry]) -> list[Record | Answered]:
    """The lines as if every label had been given as it was corrected later."""
    corrected: dict[int, int] = {}
    for entry in entries:
        if isinstance(entry, Correction):
            corrected.update(zip(entry.indices, entry.labels, strict=True))
    kept = [entry for entry in entries if not isinstance(entry, Correction)]
    if not corrected:
        return kept

    def latest(entry: Record | Answered) -> Any:
        pairs = zip(entry.indices, entry.labels, strict=True)
        return [label if label is None else corrected.get(index, label) for index, label in pairs]

    return [replace(entry, labels=latest(entry)) for entry in kept]


def merge_entries(entries: Sequence[Entry]) -> list[Record]:
    """The rounds with the labels that were given last."""
    kept = without_corrections(entries)
    answered: dict[int, dict[int, int]] = {}
    for entry in kept:
        if isinstance(entry, Answered):
            answered.setdefault(entry.round, {}).update(zip(entry.indices, entry.labels, strict=True))
    records = [entry for entry in kept if isinstance(entry, Record)]
    return [with_answers(record, answered.get(record.round)) for record in records]


def with_answers(record: Record, given: dict[int, int] | None) -> Record:
    """The round with the answers that were given to it, by index."""
    if given is None:
        return record
    pairs = zip(record.indices, record.labels, strict=True)
    return replace(record, labels=[given.get(index, label) for index, label in pairs])


def first_labels_of(entries: Sequence[Entry]) -> dict[int, int]:
    """All labels as they were answered, without corrections."""
    return dict(
        pair for entry in entries if not isinstance(entry, Correction) for pair in zip(*labels_of(entry), strict=True)
    )


def awaited_round(entries: Sequence[Entry]) -> Record | None:
    """The round whose question has no answer yet: the last one, if no line of answers follows it."""
    for entry in reversed(entries):
        if isinstance(entry, Record):
            return entry if entry.is_question else None
        if isinstance(entry, Answered) and entry.round == last_round(entries):
            return None
    return None


def last_round(entries: Sequence[Entry]) -> int:
    return sum(isinstance(entry, Record) for entry in entries) - 1


def given_up(entries: Sequence[Entry]) -> set[int]:
    """Points that someone skipped or could not tell, and that have no label since."""
    points: set[int] = set()
    for entry in entries:
        points -= set(entry.indices)
        if isinstance(entry, Answered):
            points |= {*entry.skipped, *entry.cannot_tell}
    return points


def class_names(entries: Sequence[Entry]) -> list[str] | None:
    """The names of the classes as they were last written; None where people were never asked."""
    found = [entry.classes for entry in entries if not isinstance(entry, Correction) and entry.classes is not None]
    return found[-1] if found else None
