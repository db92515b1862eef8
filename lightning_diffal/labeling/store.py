"""The questions that are open in the folder of a run, and their answers: all that a page or an importer needs.

    query = open_query(folder)                     # None if nothing is asked
    query.remaining                                # the questions without an answer, in the order they were chosen
    outcome = store_answers(folder, [Answer(index=17, label="cat")], who="ada")
    outcome.refused                                # with reasons; everything else is on the disk

Neither needs the dataset, the model or the lock of the folder: a run may be waiting, or be over.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.query_files import AUDIT, query_name, read_questions
from lightning_diffal.labeling.question import Answer, Outcome, Question, Refusal
from lightning_diffal.pool.dataset.fingerprint import size_of
from lightning_diffal.pool.folder.check import RunFiles, read_run
from lightning_diffal.pool.ledger_entries import awaited_round, class_names
from lightning_diffal.pool.record import now

WHOLE_NUMBER: Final = re.compile(r"([0-9]{1,18})(\.0+)?")  # a spreadsheet may make 1.0 of 1
MAX_NAME: Final = 200


@dataclass(frozen=True, kw_only=True)
class OpenQuery:
    """What people are asked, and what they have answered so far."""

    folder: Path
    name: str
    """Of its files: "query_003", or "audit"."""
    round: int
    """The round the question follows; 0 is the first labels."""
    classes: list[str]
    """Their names, in order."""
    new_classes: bool
    """Whether an answer may name a class that is not among them."""
    since: str | None
    """When it was asked, ISO 8601 in UTC."""
    questions: list[Question]
    """In the order in which they were chosen."""
    answers: dict[int, Answer]
    """The last answer to each question that has one. Any of them may still be changed or undone."""

    @property
    def remaining(self) -> list[Question]:
        """The questions without an answer."""
        return [question for question in self.questions if question.index not in self.answers]


def open_query(folder: Path, *, audit: bool = False) -> OpenQuery | None:
    """The questions that wait for answers; None if there are none.

    Args:
        audit: Instead, the labeled points that `audit()` found suspicious, to confirm or correct.

    Raises:
        ValueError: This is not the folder of a run that asks people, or it is damaged; the message says what to do.
    """
    run = AskedRun.read(folder)
    since: str | None
    if audit:
        if not (folder / f"{AUDIT}.json").exists():
            return None
        name, record, since = AUDIT, run.files.records[-1], time_of((folder / f"{AUDIT}.json").stat().st_mtime)
        questions = read_questions(folder, name)
    else:
        waiting = awaited_round(run.files.entries)
        if waiting is None:
            return None
        name, record, since = query_name(waiting.round), waiting, waiting.asked_at
        by_index = {question.index: question for question in read_questions(folder, name)}
        questions = [by_index.get(index, Question(index=index)) for index in record.indices]
    latest = Annotations(folder).latest
    answers = {question.index: latest[question.index] for question in questions if question.index in latest}
    if audit and since is not None:  # the label that made a point suspicious is no answer to the audit
        answers = {index: answer for index, answer in answers.items() if answer.when >= since}
    return OpenQuery(
        folder=folder,
        name=name,
        round=record.round,
        classes=run.classes,
        new_classes=run.new_classes,
        since=since,
        questions=questions,
        answers=answers,
    )


def store_answers(folder: Path, answers: Iterable[Answer], who: str = "", *, confirm: bool = False) -> Outcome:
    """Check answers and keep the good ones. What is stored is flushed to the disk when this returns.

    A label may be the name of a class, or its number as text. Points of any round may be answered: an answer about a
    point that has one already replaces it. If the run has already trained on the old label, the ledger gets a line of
    kind "correction" when the run goes on, and keeps both. `Answer(index=17, verdict="undo")` takes back an answer
    that has not been used. A point that these answers name twice, with different labels, is refused: none of the two
    is taken.

    Args:
        who: Gave the answers that do not say it themselves.
        confirm: Store also what the last answer said already, as the page does in an audit.

    Raises:
        ValueError: This is not the folder of a run that asks people.
        OSError: The disk did not take the answers. None of them is stored.
    """
    run = AskedRun.read(folder)
    given = [run.complete(answer, who) for answer in answers]
    annotations, outcome = Annotations(folder), Outcome()
    twice = conflicts(given, run)
    seen: set[int] = set()
    for answer in given:
        reason = run.refuse(answer, annotations)
        if reason is None and answer.index in twice:
            reason = f"point {answer.index} is answered twice, as {' and as '.join(twice[answer.index])}."
        if reason is not None:
            outcome.refused.append(Refusal(reason=reason, index=answer.index, line=answer.line))
        elif answer.index not in seen:
            seen.add(answer.index)
            named = replace(answer, label=run.name_of(answer.label) if answer.verdict == "label" else None)
            before = annotations.latest.get(named.index)
            same = before is not None and (before.verdict, before.label) == (named.verdict, named.label)
            (outcome.unchanged if same and not confirm else outcome.stored).append(named)
    if outcome.stored:
        annotations.append(outcome.stored)
    return outcome


def conflicts(answers: Sequence[Answer], run: "AskedRun") -> dict[int, list[str]]:
    """Points with several answers that differ, and what these are."""
    said: dict[int, list[str]] = {}
    for answer in answers:
        text = run.name_of(answer.label) if answer.verdict == "label" else answer.verdict
        if text not in said.setdefault(answer.index, []):
            said[answer.index].append(str(text))
    return {index: texts for index, texts in said.items() if len(texts) > 1}


@dataclass(frozen=True)
class AskedRun:
    """The ledger of a run that asks people, and what its answers may be."""

    files: RunFiles
    classes: list[str]
    new_classes: bool
    asked: dict[int, int]
    """The last round in which each point was asked about."""
    labels: dict[int, int]
    """Those in the ledger, as corrected."""

    @staticmethod
    def read(folder: Path) -> "AskedRun":
        files = read_run(folder) if folder.is_dir() else None
        if files is None or not (files.entries or files.ledger_problems):
            raise ValueError(f"{folder}: this is not the folder of a run, it has no rounds.jsonl.")
        # A torn last line is no line yet, and the run itself removes it.
        damaged = [problem for problem in files.ledger_problems if problem.line is not None]
        if damaged:
            raise ValueError(f"{damaged[0]} Run `lightning-diffal repair {folder}` first.")
        classes = names_of_classes(files)
        if classes is None:
            raise ValueError(f"{folder}: this run does not ask people. oracle=People(classes=[...]) does.")
        records = files.records
        asked = {index: record.round for record in records for index in record.indices}
        return AskedRun(files, classes, records[-1].new_classes, asked, files.labels)

    @property
    def size(self) -> int | None:
        """The number of points in the dataset."""
        return size_of(self.files.records[0].dataset)

    def name_of(self, label: str | None) -> str | None:
        """The name of a class that is given by name or by number; None if it is neither."""
        text = (label or "").strip()
        if text in self.classes:
            return text
        number = WHOLE_NUMBER.fullmatch(text)
        if number is None:
            return text if self.new_classes and is_class_name(text) else None
        # Where names are numbers, as of digits, no other number is meant.
        by_number = int(number[1]) < len(self.classes) and not any(map(str.isdecimal, self.classes))
        return self.classes[int(number[1])] if by_number else None

    def complete(self, answer: Answer, who: str) -> Answer:
        """An answer with its author and time; one that says "skip" means the class, where there is one of this name."""
        verdict = "label" if answer.label in self.classes else answer.verdict
        return replace(answer, verdict=verdict, who=answer.who or who or "unknown", when=answer.when or now())

    def refuse(self, answer: Answer, annotations: Annotations) -> str | None:
        """Why an answer cannot be taken; None if it can."""
        index, size = answer.index, self.size
        if not 0 <= index < (size if size is not None else index + 1):
            return f"index {index} is not a point of the dataset, which has {size}, counted from 0."
        if index not in self.asked:
            return f"point {index} was not asked about."
        if answer.verdict == "label":
            return self.refuse_label(answer)
        if index in self.labels:
            return f"point {index} has been trained on: its label can be corrected, and not be taken back."
        if answer.verdict == "undo" and index not in annotations.latest:
            return f"point {index} has no answer that could be undone."
        return None

    def refuse_label(self, answer: Answer) -> str | None:
        if not (answer.label or "").strip():
            return f"point {answer.index} has an empty label."
        if self.name_of(answer.label) is not None:
            return None
        names = ", ".join(self.classes[:20]) + (", ..." if len(self.classes) > 20 else "")
        return f"{answer.label!r:.80} is not a class. The classes are {names}."


def names_of_classes(files: RunFiles) -> list[str] | None:
    """As the ledger has them. In an audit of a run that did not ask people they are the numbers."""
    names = class_names(files.entries)
    if names is None and (files.folder / f"{AUDIT}.json").exists():
        return [str(number) for number in range(max(files.labels.values(), default=-1) + 1)]
    return names


def is_class_name(text: str) -> bool:
    """Whether a text can be the name of a new class: not too long, and nothing that cannot be shown or encoded."""
    return 0 < len(text) <= MAX_NAME and text.isprintable()


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")
