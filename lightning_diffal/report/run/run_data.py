"""What the files of a run say, for its report. Nothing is computed again and nothing is written."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.query_files import query_name, read_questions
from lightning_diffal.labeling.question import Question
from lightning_diffal.pool.dataset.fingerprint import size_of
from lightning_diffal.pool.folder.check import read_run
from lightning_diffal.pool.history import History
from lightning_diffal.pool.ledger_entries import awaited_round, class_names
from lightning_diffal.pool.record import Answered, Record

SKIPPED, CANNOT_TELL, OPEN = "skipped", "can’t tell", "no answer yet"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A point that was asked about."""

    index: int
    label: str
    """The name of its class, or why there is none."""
    labeled: bool
    reached: bool | None
    score: float | None
    question: Question | None
    """What people saw of it, where people were asked."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    folder: Path
    records: list[Record]
    """The rounds; 0 is the first labels."""
    classes: list[str] | None
    """Their names, where the run has them."""
    asked: dict[int, list[Asked]]
    """The points of each round, in the order they were asked."""
    waiting: Record | None
    """The round that waits for answers of people."""

    @property
    def history(self) -> History:
        return History(self.records)

    @property
    def fits(self) -> list[Record]:
        return [record for record in self.records if record.round > 0]

    @property
    def pool_size(self) -> int | None:
        return size_of(self.records[0].dataset)

    @property
    def counts(self) -> Counter[str]:
        """Labels of each class, in the order of the classes where that is known."""
        found = Counter(one.label for points in self.asked.values() for one in points if one.labeled)
        names = self.classes if self.classes is not None else sorted(found, key=int)
        return Counter({name: found[name] for name in names})


def read_run_data(folder: Path) -> RunData:
    """The run in a folder.

    Raises:
        ValueError: A line of its ledger is damaged.
    """
    files = read_run(folder)
    damaged = [problem for problem in files.ledger_problems if problem.line is not None]
    if damaged:
        raise ValueError(f"{damaged[0]} `lightning-diffal repair {folder}` comes first.")
    if not files.records:
        raise ValueError(f"{folder}: the run has not begun, its ledger is empty.")
    answered = [entry for entry in files.entries if isinstance(entry, Answered)]
    given_up = {index: SKIPPED for entry in answered for index in entry.skipped}
    given_up |= {index: CANNOT_TELL for entry in answered for index in entry.cannot_tell}
    classes = class_names(files.entries)
    pending = {index: answer.label for index, answer in Annotations(folder).latest.items()} if classes else {}

    def asked(record: Record) -> list[Asked]:
        questions = {question.index: question for question in questions_of(folder, record.round)}
        points = []
        for index, label, reached, score in zip(
            record.indices, record.labels, record.reached, record.scores, strict=True
        ):
            if label is not None:
                name: str | None = classes[label] if classes is not None and label < len(classes) else str(label)
            else:
                name = pending.get(index)
            points.append(
                Asked(
                    index=index,
                    label=name or given_up.get(index, OPEN),
                    labeled=name is not None,
                    reached=reached,
                    score=score,
                    question=questions.get(index),
                )
            )
        return points

    return RunData(
        folder=folder,
        records=files.records,
        classes=classes,
        asked={record.round: asked(record) for record in files.records},
        waiting=awaited_round(files.entries),
    )


def questions_of(folder: Path, number: int) -> list[Question]:
    """What people were shown in a round; nothing in a simulation."""
    name = query_name(number)
    return read_questions(folder, name) if (folder / f"{name}.json").exists() else []
