"""The lines of a ledger: rounds, or questions and their answers, and corrections of labels."""

import math
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, ClassVar, Final, TypeAlias

# Labels are kept in tensors of this range.
MAX_LABEL: Final = 2**63 - 1

REASONS: Final = ("budget", "pool", "stop_when")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One round: a fit, and the query after it. Round 0 is the first labels, before any fit.

    A round with its labels is one line, of kind "round". As long as nobody has answered, it is a line of kind "asked",
    without labels. The answer of a function takes its place; those of people are lines of their own: see `Answered`.
    """

    kind: ClassVar[str] = "round"
    asked_kind: ClassVar[str] = "asked"

    round: int
    labeled: int
    """Points that the fit of this round was trained on."""
    indices: list[int]
    labels: list[int | None]
    """The class of each point; None where there is no answer yet, or none that is a class."""
    scores: list[float | None]
    reached: list[bool | None]
    selector: str
    """The selector that chose, with all its parameters."""
    seeds: dict[str, int]
    """`run`, as the user gave it, and `round`, derived from it."""
    initial: str
    """How the first labels were chosen."""
    dataset: str
    """The dataset's fingerprint."""
    features: str | None = None
    """Where the fixed features come from, None if there are none."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """The last value of every metric of the fit."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of the fit and of each stage of the query."""
    feature_accuracy: dict[str, float] = field(default_factory=dict)
    """What `features="auto"` chose by: the leave-one-out accuracy of labels diffused over each kind of features."""
    steps: int = 0
    """Optimizer steps of the fit."""
    predicted: list[int] = field(default_factory=list)
    """The class that the model gave each point of the query before it was labeled; empty where that is unknown."""
    diffused: dict[str, float] = field(default_factory=dict)
    """Of the points that were trained on with diffused labels: how many, how sure. Empty where that was not tried."""
    unreached: int | None = None
    """Unlabeled points that no label had reached before the query."""
    last: str | None = None
    """Why the run was over after this round, if it was: "budget", "pool" (nothing left to ask) or "stop_when"."""

    asked_at: str | None = None
    """When people were asked."""
    classes: list[str] | None = None
    """Names of the classes, where people answer by name. The place of a name is its number."""
    new_classes: bool = False
    """Whether people may name further classes."""

    @staticmethod
    def from_json(line: dict[str, Any]) -> "Record":
        """A line of the ledger whose every field is what it should be, else ValueError."""
        if line.get("kind") == Record.asked_kind:
            if "labels" in line:
                raise ValueError("a question has no labels; its answers are lines of their own.")
            check_field("indices", line.get("indices"))
            line = {**line, "labels": []}
            record = Record(**checked_fields(Record, line))
            record.labels.extend([None] * len(record.indices))
        else:
            record = Record(**checked_fields(Record, line))
        for name in ("labels", "scores", "reached"):
            check_length(name, getattr(record, name), record.indices)
        if record.predicted:
            check_length("predicted", record.predicted, record.indices)
        return record

    @property
    def is_question(self) -> bool:
        """Whether it is about points whose labels are not there yet."""
        return None in self.labels

    def to_json(self) -> dict[str, Any]:
        """A line of kind "round", or "asked" as long as there is no label."""
        content = {name: value for name, value in asdict(self).items() if name not in OPTIONAL or value}
        if not self.is_question:
            return {"kind": self.kind, **content}
        del content["labels"]
        return {"kind": self.asked_kind, **content}


# Fields of rounds that are written only where they say something.
OPTIONAL: Final = ("asked_at", "classes", "new_classes")


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Answers to the question of a round; the first such line closes it, later ones add what came late."""

    kind: ClassVar[str] = "answered"

    round: int
    indices: list[int]
    labels: list[int]
    who: list[str]
    """Who gave each label."""
    when: list[str]
    skipped: list[int] = field(default_factory=list)
    """Points that someone did not want to label: never trained on, not asked again."""
    cannot_tell: list[int] = field(default_factory=list)
    """Points whose class someone could not tell: the same."""
    classes: list[str] | None = None
    """The names of all classes, if these answers have added some."""

    @staticmethod
    def from_json(line: dict[str, Any]) -> "Answered":
        answered = Answered(**checked_fields(Answered, line))
        for name in ("labels", "who", "when"):
            check_length(name, getattr(answered, name), answered.indices)
        return answered

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Labels that were changed after they were given, by `lightning-diffal correct`. The ledger keeps both."""

    kind: ClassVar[str] = "correction"

    indices: list[int]
    labels: list[int]
    was: list[int | None]
    """The labels before; None where an older version had stored what is not a label."""
    when: str
    by: str

    @staticmethod
    def from_json(line: dict[str, Any]) -> "Correction":
        correction = Correction(**checked_fields(Correction, line))
        for name in ("labels", "was"):
            check_length(name, getattr(correction, name), correction.indices)
        return correction

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


# A line of a ledger.
Entry: TypeAlias = Record | Answered | Correction


def entry_from_json(line: dict[str, Any]) -> Entry | None:
    """A line of a ledger; None for kinds of lines that a newer minor version has added."""
    kind = line.get("kind", Record.kind)  # older versions wrote rounds only
    if kind in (Record.kind, Record.asked_kind):
        return Record.from_json(line)
    if kind == Answered.kind:
        return Answered.from_json(line)
    return Correction.from_json(line) if kind == Correction.kind else None


def now() -> str:
    """The time of an answer, to the microsecond: it tells answers about one point apart."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


# What each field must be: how messages say it, and a test.


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return is_int(value) and 0 <= value <= MAX_LABEL  # type: ignore[operator]


def is_number(value: object) -> bool:
    return (is_int(value) or isinstance(value, float)) and math.isfinite(value)  # type: ignore[arg-type]


def is_text(value: object) -> bool:
    return isinstance(value, str)


def optional(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or test(value)


def all_of(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


def names_of(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


def is_index(value: object) -> bool:
    return is_int(value) and abs(value) <= MAX_LABEL  # type: ignore[arg-type]


def is_set(values: Any) -> bool:
    return len(set(values)) == len(values)


TESTS: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    "round": ("an integer from 0", is_count),
    "labeled": ("an integer from 0", is_count),
    "indices": ("a list of integers", all_of(is_index)),  # their range is checked with the pool's size
    "labels": ("a list of integers from 0 that fit into 64 bits", all_of(is_count)),
    "was": ("a list of integers or null", all_of(optional(is_count))),
    "scores": ("a list of numbers or null", all_of(optional(is_number))),
    "reached": ("a list of true, false or null", all_of(optional(lambda value: isinstance(value, bool)))),
    "selector": ("text", is_text),
    "seeds": ("integers named run and round", lambda value: names_of(is_int)(value) and {"run", "round"} <= set(value)),  # type: ignore[call-overload]
    "initial": ("text", is_text),
    "dataset": ("a fingerprint like 120-0123456789abcdef", is_text),
    "features": ("text, or null", optional(is_text)),
    "metrics": ("numbers or null by name", names_of(optional(is_number))),
    "seconds": ("numbers by name", names_of(is_number)),
    "feature_accuracy": ("numbers by name", names_of(is_number)),
    "steps": ("an integer from 0", is_count),
    "predicted": ("a list of integers from 0", all_of(is_count)),
    "diffused": ("numbers by name", names_of(is_number)),
    "unreached": ("an integer from 0, or null", optional(is_count)),
    "last": (f"one of {', '.join(REASONS)}, or null", lambda value: value is None or value in REASONS),
    "when": ("text", is_text),
    "answered.when": ("a list of times", all_of(is_text)),
    "asked_at": ("text, or null", optional(is_text)),
    "by": ("text", is_text),
    "who": ("a list of names", all_of(is_text)),
    "skipped": ("a list of integers", all_of(is_index)),
    "cannot_tell": ("a list of integers", all_of(is_index)),
    "classes": ("a list of different names, or null", optional(lambda value: all_of(is_text)(value) and is_set(value))),
    "new_classes": ("true or false", lambda value: isinstance(value, bool)),
}


def checked_fields(kind: type[Record] | type[Answered] | type[Correction], line: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass in a line. What it does not know is ignored: newer versions may add fields."""
    parts = fields(kind)
    missing = [
        part.name
        for part in parts
        if part.default is MISSING and part.default_factory is MISSING and part.name not in line
    ]
    if missing:
        raise ValueError(f"a line of a ledger needs {', '.join(missing)}.")
    given = {part.name: line[part.name] for part in parts if part.name in line}
    for name, value in given.items():
        own = f"{kind.kind}.{name}"
        check_field(own if own in TESTS else name, value)
    return given


def check_field(name: str, value: object) -> None:
    """Refuse a value that the field of this name cannot have."""
    what, test = TESTS[name]
    if not test(value):
        raise ValueError(f"{name.rpartition('.')[2]} must be {what}, it is {value!r:.80}.")


def check_length(name: str, values: list[Any], indices: list[int]) -> None:
    if len(values) != len(indices):
        raise ValueError(f"{len(indices)} points and {len(values)} {name}: one for each point is needed.")
