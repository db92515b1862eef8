"""The questions of a run as its pages in the browser see them."""

import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lightning_diffal.labeling.item_text import item_text
from lightning_diffal.labeling.page.leases import Leases
from lightning_diffal.labeling.page.pace import Pace
from lightning_diffal.labeling.query_files import AUDIT
from lightning_diffal.labeling.question import Answer, Item, Outcome, Question
from lightning_diffal.labeling.store import OpenQuery, open_query, store_answers
from lightning_diffal.pool.folder.check import ANNOTATIONS, LEDGER

Json = dict[str, Any]
READ_AGAIN_SECONDS: Final = 5.0


class Session:
    """What is asked, who answers what, and the way of the answers to the disk. Its methods may be called by threads.

    Args:
        who: Gave the answers of pages that do not say it themselves.
        audit: Labels to confirm or correct, instead of the questions of the last round.
    """

    def __init__(self, folder: Path, who: str, *, audit: bool = False) -> None:
        self.folder, self.who, self.audit = folder, who, audit
        self.leases, self.pace = Leases(), Pace()
        self.lock = threading.Lock()
        self.stamp: object = None
        self.read_again = math.inf
        self.query: OpenQuery | None = None

    def refresh(self) -> OpenQuery | None:
        """Look for new questions, and for answers that came another way, if the files have changed."""
        stamp = self.files_stamp()
        if stamp != self.stamp or time.monotonic() > self.read_again:
            self.query, self.stamp = open_query(self.folder, audit=self.audit), stamp
            self.read_again = math.inf
        return self.query

    def files_stamp(self) -> object:
        return [file_stamp(self.folder / name) for name in (LEDGER, ANNOTATIONS, f"{AUDIT}.json")]

    def take(self, client: str, count: int) -> Json:
        """Items for a page, at most `count`, which no other page gets as long as this one renews them."""
        with self.lock:
            query = self.refresh()
            questions = {question.index: question for question in query.remaining} if query is not None else {}
            taken = self.leases.take(client, list(questions), count)
            return {
                "items": [self.item_json(questions[index]) for index in taken],
                "classes": self.classes(),
                "may_add": query is not None and query.new_classes,
                "audit": self.audit,
                "progress": self.progress(),
            }

    def store(self, client: str, answers: Sequence[tuple[int, Json | None, Json | None]], who: str = "") -> Json:
        """Answers of a page, each with the index, what is said and what the page thought was said before.

        Those saved are on the disk when this returns. Where somebody else has answered meanwhile, theirs is kept: the
        page shows it, and may change it then.
        """
        with self.lock:
            query = self.refresh()
            questions = {question.index: question for question in query.questions} if query is not None else {}
            refused, accepted, saved = [], [], []
            for index, said, was in answers:
                current = self.answer_json(index)
                if index not in questions:
                    refused.append({"index": index, "reason": "it is not asked any more"})
                elif said == current and not self.audit:  # a request that was repeated, since its reply was lost
                    saved.append(index)
                elif was != current:
                    reason = "somebody else has answered it meanwhile"
                    refused.append({"index": index, "reason": reason, "answer": current})
                else:
                    accepted.append(self.answer_of(questions[index], said))
            outcome = store_answers(self.folder, accepted, who or self.who, confirm=self.audit)
            saved += [answer.index for answer in (*outcome.stored, *outcome.unchanged)]
            refused += [{"index": refusal.index, "reason": refusal.reason} for refusal in outcome.refused]
            self.note(outcome)
            self.pace.add(sum(answer.verdict != "undo" for answer in outcome.stored))
            self.leases.claim(client, [index for index in saved if self.answer_json(index) is None])
            return {
                "saved": [{"index": index, "answer": self.answer_json(index)} for index in saved],
                "refused": refused,
                "progress": self.progress(),
            }

    def note(self, outcome: Outcome) -> None:
        """What was stored here is known without reading the files again."""
        if self.query is None:
            return
        for answer in outcome.stored:
            if answer.verdict == "undo":
                self.query.answers.pop(answer.index, None)
            else:
                self.query.answers[answer.index] = answer
        self.stamp = self.files_stamp()
        # Unless somebody else wrote in the same moment: that is seen a little later.
        self.read_again = min(self.read_again, time.monotonic() + READ_AGAIN_SECONDS)

    def answer_of(self, question: Question, said: Json | None) -> Answer:
        if said is not None:
            return Answer(index=question.index, verdict=said["verdict"], label=said.get("label"))
        if self.audit:  # there is always a label; the one from before the audit comes back
            return Answer(index=question.index, label=question.label)
        return Answer(index=question.index, verdict="undo")

    def renew(self, client: str) -> None:
        with self.lock:
            self.leases.renew(client)

    def release(self, client: str) -> None:
        with self.lock:
            self.leases.release(client)

    def neighbors(self, index: int) -> list[Json]:
        """The labeled neighbors of an item."""
        with self.lock:
            found = [question for question in self.questions() if question.index == index]
            return [{**self.show(near), "label": near.label} for question in found for near in question.neighbors]

    def file(self, index: int) -> Path | None:
        """The file of an item or of a neighbor; None for everything else."""
        with self.lock:
            items = {item.index: item for one in self.questions() for item in (*one.neighbors, one)}
        return self.file_of(items[index]) if index in items else None

    def file_of(self, item: Item) -> Path | None:
        """Symbolic links are followed. A relative path must not lead out of the folder of the run."""
        path = item.file(self.folder)
        if path is None:
            return None
        resolved = path.resolve()
        allowed = Path(item.path or "").is_absolute() or resolved.is_relative_to(self.folder.resolve())
        return resolved if allowed and resolved.is_file() else None

    def questions(self) -> list[Question]:
        query = self.refresh()
        return query.questions if query is not None else []

    def classes(self) -> list[str]:
        """Those of the run, and those that answers have added."""
        query = self.query
        if query is None:
            return []
        named = [answer.label for answer in query.answers.values() if answer.label is not None]
        return list(dict.fromkeys([*query.classes, *named]))

    def progress(self) -> Json:
        query = self.query
        total = len(query.questions) if query is not None else 0
        remaining = len(query.remaining) if query is not None else 0
        return {
            "answered": total - remaining,
            "total": total,
            "round": query.round if query is not None and not self.audit else None,
            "seconds_left": self.pace.seconds_left(remaining),
        }

    def answer_json(self, index: int) -> Json | None:
        answer = self.query.answers.get(index) if self.query is not None else None
        if answer is None:
            return None
        return {"verdict": answer.verdict} | ({"label": answer.label} if answer.verdict == "label" else {})

    def item_json(self, question: Question) -> Json:
        known = ("prediction", "probability", "diffused", "reason", "label")
        content = {name: getattr(question, name) for name in known}
        return {**self.show(question), **content, "answer": self.answer_json(question.index)}

    def show(self, item: Item) -> Json:
        """What the page shows of an item: its picture, or a text."""
        name = Path(item.path).name if item.path is not None else f"Point {item.index}"
        text = item_text(item, self.file_of(item))
        if text is None and item.path is None:
            text = f"{name} has neither a picture nor a text: People(render=...) makes one."
        image = item.path is not None and (text is None or item.text is not None)
        return {"index": item.index, "name": name, "image": image, "text": text}


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116, for its errors are all the same here
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
