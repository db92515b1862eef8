"""Questions to people and their answers, as they are in the files of a run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

# A label; "skip": someone would rather not say; "cannot_tell": nobody could, from this item; "undo": the answer before
# does not count, the question is open again.
Verdict: TypeAlias = Literal["label", "skip", "cannot_tell", "undo"]
VERDICTS: Final = ("label", "skip", "cannot_tell", "undo")

# Why a point is asked about: among the first labels; where no label had reached; where classes are torn; since its
# neighbors disagree with the label it has.
Reason: TypeAlias = Literal["first", "explore", "refine", "audit"]


@dataclass(frozen=True, kw_only=True)
class Item:
    """What a person sees of a point: a picture or a text."""

    index: int
    """Of the dataset."""
    path: str | None = None
    """The file of the item; relative to the folder of the run where it was rendered into it."""
    text: str | None = None

    def file(self, folder: Path) -> Path | None:
        """The file to show."""
        return None if self.path is None else folder / self.path  # an absolute path stays as it is


@dataclass(frozen=True, kw_only=True)
class Neighbor(Item):
    """A labeled point near one that is asked about."""

    label: str


@dataclass(frozen=True, kw_only=True)
class Question(Item):
    """A point that is asked about, and what is known of it. Classes are given by name."""

    prediction: str | None = None
    """The model's class, None before the first fit."""
    probability: float | None = None
    """The model's probability of it."""
    diffused: str | None = None
    """The class that the labels diffused over the graph suggest; None where none has come this far."""
    reason: Reason = "first"
    score: float | None = None
    """The selector's score: lower was chosen first. In an audit, the larger the more suspicious."""
    label: str | None = None
    """In an audit: the label that the point has."""
    neighbors: Sequence[Neighbor] = ()
    """The nearest labeled points, nearest first."""

    def to_json(self) -> dict[str, Any]:
        """Without what is not known."""
        content = asdict(self)
        content["neighbors"] = [
            {name: value for name, value in neighbor.items() if value is not None} for neighbor in content["neighbors"]
        ]
        return {name: value for name, value in content.items() if value is not None and value != []}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Question":
        """Fields it does not know are ignored: newer versions may add some."""
        known = {name: content[name] for name in Question.__dataclass_fields__ if name in content}
        neighbors = [Neighbor(**neighbor) for neighbor in known.pop("neighbors", [])]
        return Question(**known, neighbors=neighbors)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What someone said about a point."""

    index: int
    label: str | None = None
    """The name of a class, where the verdict is "label"; else None."""
    verdict: Verdict = "label"
    who: str = ""
    when: str = ""
    """ISO 8601 in UTC."""
    line: int | None = None
    """Of the file it was read from, for messages."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer that is not taken, and why."""

    reason: str
    index: int | None = None
    line: int | None = None
    """Of the file; None where the answer did not come from one, or all of it is meant."""

    def __str__(self) -> str:
        return f"{f'line {self.line}: ' if self.line is not None else ''}{self.reason}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of answers. Those stored are on the disk."""

    stored: list[Answer] = field(default_factory=list)
    """New ones, changed ones and those taken back."""
    unchanged: list[Answer] = field(default_factory=list)
    """Those that were there already, word for word."""
    refused: list[Refusal] = field(default_factory=list)
