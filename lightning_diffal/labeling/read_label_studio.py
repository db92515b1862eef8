"""Answers in an export of Label Studio: JSON, with all annotations of a task, or JSON-MIN, with one row for each.

Formats: https://labelstud.io/guide/task_format and https://labelstud.io/guide/export, as documented in 2026.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lightning_diffal.labeling.question import Answer, Refusal
from lightning_diffal.pool.folder.line_format import refuse_constant, unique_names
from lightning_diffal.pool.record import is_count

# In JSON-MIN the choice stands beside the data of the task, under the name that it has in the labeling interface.
CHOICE_NAMES: Final = ("label", "choice", "class", "choices")
OTHER_NAMES: Final = {
    *("index", "path", "image", "text", "prediction", "probability", "diffused", "reason", "score", "neighbors"),
    *("current_label", "id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"),
}


@dataclass
class Votes:
    """What the annotators of a task have said."""

    line: int
    choices: list[str] = field(default_factory=list)
    skips: int = 0
    who: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_export(text: str) -> Iterator[Answer | Refusal]:
    """The answers of an export, and the tasks without one.

    A choice is the name of a class or its number. Of several annotators the majority counts; a tie is no answer.
    """
    votes: dict[int, Votes] = {}
    for line, task in tasks_of(text):
        if isinstance(task, str):
            yield Refusal(line=line, reason=task)
            continue
        index = index_of(task)
        if index is None:
            yield Refusal(line=line, reason="this task has no index: a whole number from 0, under data, is needed.")
            continue
        add_votes(votes.setdefault(index, Votes(line)), task)
    for index, given in votes.items():
        yield from count_votes(index, given)


def tasks_of(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Each task of a list, or a single one, with its line; or what is wrong. What stands before a break is read."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=unique_names)
    place = end_of_space(text, 0)
    in_list = text[place : place + 1] == "["
    place, line, seen = end_of_space(text, place + in_list), 1, 0
    while place < len(text) and not (in_list and text[place] == "]"):
        line, seen = line + text.count("\n", seen, place), place
        try:
            task, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            yield line, f"the file is broken here ({reason:.200}): nothing after this is read."
            return
        yield line, task if isinstance(task, dict) else f"a task is needed, not {type(task).__name__}."
        place = end_of_space(text, place)
        if in_list and text[place : place + 1] == ",":
            place = end_of_space(text, place + 1)
        elif in_list and text[place : place + 1] != "]":
            yield line, "the file is broken after this task: nothing more is read."
            return
    if in_list and place >= len(text):
        yield line, "the list of tasks does not end: the file was cut off."
    elif end_of_space(text, place + 1) < len(text):
        yield line + text.count("\n", seen, place), "there is more after the list of tasks, which is not read."


def end_of_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def index_of(task: Mapping[str, Any]) -> int | None:
    data = task.get("data") if isinstance(task.get("data"), dict) else task
    assert isinstance(data, Mapping)
    index = data.get("index")
    if isinstance(index, str) and index.isascii() and index.isdecimal() and len(index) < 19:
        index = int(index)
    return index if is_count(index) else None


def add_votes(votes: Votes, task: Mapping[str, Any]) -> None:
    if "annotations" not in task and "completions" not in task:
        add_choice(votes, *choices_beside(task), who=task.get("annotator"))
        return
    annotations = task.get("annotations", task.get("completions"))  # as versions before 1.0 called them
    for annotation in annotations if isinstance(annotations, list) else [annotations]:
        if not isinstance(annotation, dict):
            votes.problems.append("an annotation is needed where it has something else")
        elif annotation.get("was_cancelled") is True:
            votes.skips += 1
        else:
            result = annotation.get("result")
            parts = result if isinstance(result, list) else []
            chosen = [choice for part in parts for choice in choices_in(part)]
            add_choice(votes, chosen, None, who=annotation.get("completed_by"))


def choices_in(part: Any) -> list[Any]:
    """The choices of one region of a result; none if it is not of choices."""
    value = part.get("value") if isinstance(part, dict) else None
    given = value.get("choices") if isinstance(value, dict) else None
    return given if isinstance(given, list) else [] if given is None else [given]


def choices_beside(row: Mapping[str, Any]) -> tuple[list[Any], str | None]:
    """The choices of a row of JSON-MIN, or why they cannot be found."""
    names = [name for name in CHOICE_NAMES if name in row] or [name for name in row if name not in OTHER_NAMES]
    if len(names) > 1:
        return [], f"each of {', '.join(map(repr, names[:5]))} may be the label"
    given = row[names[0]] if names else None
    if isinstance(given, dict):
        given = given.get("choices")
    return (given if isinstance(given, list) else [] if given in (None, "") else [given]), None


def add_choice(votes: Votes, chosen: Sequence[Any], problem: str | None, who: Any) -> None:
    texts = [str(choice).strip() for choice in chosen if isinstance(choice, (str, int)) and choice is not True]
    if problem is not None:
        votes.problems.append(problem)
    elif len(set(texts)) > 1 or len(texts) != len(chosen):
        votes.problems.append(f"an annotation chooses {list(chosen)!r:.80}, where one class is needed")
    elif texts:
        votes.choices.append(texts[0])
        votes.who.append(name_of(who))


def name_of(who: Any) -> str:
    if isinstance(who, dict):
        who = who.get("email") or who.get("id")
    return f"label studio {who}" if isinstance(who, (str, int)) and who != "" else "label studio"


def count_votes(index: int, votes: Votes) -> Iterator[Answer | Refusal]:
    """The answer about a point, if its annotators agree on one."""
    line = votes.line
    if votes.problems:
        yield Refusal(line=line, index=index, reason=f"point {index}: {votes.problems[0]}.")
        return
    ranking = Counter(votes.choices).most_common()
    if not ranking and votes.skips:
        yield Answer(index=index, verdict="skip", who="label studio", line=line)
    elif not ranking:
        yield Refusal(line=line, index=index, reason=f"point {index} has an empty label.")
    elif len(ranking) > 1 and ranking[0][1] == ranking[1][1]:
        said = ", ".join(f"{choice!r:.40} {count} times" for choice, count in ranking)
        yield Refusal(line=line, index=index, reason=f"point {index}: a tie between annotators ({said}); still open.")
    else:
        label, _ = ranking[0]
        who = ", ".join(dict.fromkeys(w for w, choice in zip(votes.who, votes.choices, strict=True) if choice == label))
        yield Answer(index=index, label=label, who=who, line=line)
