"""From the answers of people to lines of the ledger."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from lightning_diffal.labeling.query_files import query_name
from lightning_diffal.labeling.question import Answer
from lightning_diffal.pool.history import Waiting
from lightning_diffal.pool.ledger_entries import awaited_round, class_names, first_labels_of
from lightning_diffal.pool.record import Answered, Correction, Entry, Record

WaitFor: TypeAlias = Literal["all", "any"]
WAIT_FOR: Final = ("all", "any")


def is_complete(record: Record, answers: Mapping[int, Answer], wait_for: WaitFor) -> bool:
    """Whether a run may go on: every point has an answer, or any has a label where that is enough."""
    given = [answers[index] for index in record.indices if index in answers]
    return len(given) == len(record.indices) or (wait_for == "any" and any(answer.label for answer in given))


def waiting_for(
    folder: Path, entries: Sequence[Entry], answers: Mapping[int, Answer], wait_for: WaitFor
) -> Waiting | None:
    """What a run waits for; None if it may go on."""
    record = awaited_round(entries)
    if record is None or is_complete(record, answers, wait_for):
        return None
    name = query_name(record.round)
    return Waiting(
        round=record.round,
        indices=record.indices,
        answered=sum(index in answers for index in record.indices),
        files=[str(folder / f"{name}.csv"), str(folder / f"{name}.json")],
        since=record.asked_at or "",
    )


def new_entries(
    entries: Sequence[Entry], answers: Mapping[int, Answer], wait_for: WaitFor, budget: int, classes: Sequence[str]
) -> list[Entry]:
    """The lines that a ledger lacks: answers to the question that is open, late ones to earlier questions, corrections.

    None as long as the open question is not answered well enough: then the run waits, and nothing is used.

    Args:
        budget: Labels in total. Late answers beyond it are left where they are.
        classes: The names so far; answers may add some.
    """
    waiting = awaited_round(entries)
    if waiting is not None and not is_complete(waiting, answers, wait_for):
        return []
    numbering = Numbering(classes)
    labels = current_labels(entries)
    records = [entry for entry in entries if isinstance(entry, Record)]
    gone = skipped_in(entries)
    found: list[Entry] = []
    room = budget - len(labels)
    # The last round comes first: what was asked for now goes before what comes late.
    for record in reversed(records):
        open_points = {
            index: answers[index]
            for index in record.indices
            if index in answers and index not in labels and gone.get(index) != answers[index].verdict
        }
        labeled = {index: answer for index, answer in open_points.items() if answer.label is not None}
        if record is not waiting:
            labeled = dict(list(labeled.items())[: max(room, 0)])
        room -= len(labeled)
        without = {index: answer for index, answer in open_points.items() if answer.label is None}
        if record is waiting or labeled or without:
            found.append(answered_line(record, labeled, without, numbering))
            labels |= {index: numbering.number(str(answer.label)) for index, answer in labeled.items()}
            gone |= {index: answer.verdict for index, answer in without.items()}
    return [*found, *corrections_in(entries, answers, numbering)]


def answered_line(
    record: Record, labeled: Mapping[int, Answer], without: Mapping[int, Answer], numbering: "Numbering"
) -> Answered:
    before = len(numbering.names)
    numbers = [numbering.number(str(answer.label)) for answer in labeled.values()]
    return Answered(
        round=record.round,
        indices=list(labeled),
        labels=numbers,
        who=[answer.who for answer in labeled.values()],
        when=[answer.when for answer in labeled.values()],
        skipped=[index for index, answer in without.items() if answer.verdict == "skip"],
        cannot_tell=[index for index, answer in without.items() if answer.verdict == "cannot_tell"],
        classes=list(numbering.names) if len(numbering.names) > before else None,
    )


def corrections_in(entries: Sequence[Entry], answers: Mapping[int, Answer], numbering: "Numbering") -> list[Correction]:
    """Answers about labeled points that say something else than the ledger, and that it has not taken before.

    `lightning-diffal correct` changes a label in the ledger alone; the older answer must not change it back.
    """
    taken = set[tuple[int, str]]()
    for entry in entries:
        if isinstance(entry, Answered):
            taken |= set(zip(entry.indices, entry.when, strict=True))
        elif isinstance(entry, Correction):
            taken |= {(index, entry.when) for index in entry.indices}
    found = []
    for index, label in current_labels(entries).items():
        answer = answers.get(index)
        if answer is None or answer.label is None or (index, answer.when) in taken:
            continue
        number = numbering.known(answer.label)
        if number is not None and number != label:
            found.append(Correction(indices=[index], labels=[number], was=[label], when=answer.when, by=answer.who))
    return found


class Numbering:
    """Names of classes and their numbers; new names get the next ones."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def known(self, name: str) -> int | None:
        return self.names.index(name) if name in self.names else None

    def number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def current_labels(entries: Sequence[Entry]) -> dict[int, int]:
    """All labels of a ledger, as corrected."""
    labels = first_labels_of(entries)
    for entry in entries:
        if isinstance(entry, Correction):
            labels.update(zip(entry.indices, entry.labels, strict=True))
    return labels


def skipped_in(entries: Sequence[Entry]) -> dict[int, str]:
    """Points that the ledger knows as skipped or not to be told, and as which of the two."""
    found: dict[int, str] = {}
    for entry in entries:
        if isinstance(entry, Answered):
            found |= dict.fromkeys(entry.skipped, "skip") | dict.fromkeys(entry.cannot_tell, "cannot_tell")
    return found


def agreed_classes(given: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """The names of the classes: those of the ledger, and those that the user has added at the end since.

    Raises:
        ValueError: The user's are others, or in another order: the numbers in the ledger would mean something else.
    """
    recorded = class_names(entries) or []
    shorter, longer = sorted((list(given), recorded), key=len)
    if longer[: len(shorter)] != shorter:
        raise ValueError(
            f"People(classes={list(given)}): this run began with the classes {recorded}, in this order. Names may be "
            "added at the end; another folder=... starts a new run."
        )
    return longer
