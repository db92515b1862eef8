"""Answers in a file, whatever made it: one importer for all."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from lightning_diffal.labeling.question import Answer, Outcome, Refusal
from lightning_diffal.labeling.read_csv import read_table
from lightning_diffal.labeling.read_label_studio import read_export
from lightning_diffal.labeling.store import store_answers

BYTE_ORDER_MARKS: Final = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}

# What people write into the label column where they have no label, unless a class has this name.
SKIP: Final = ("skip", "skipped")
CANNOT_TELL: Final = ("can't tell", "can’t tell", "cannot tell", "cant tell", "cannot_tell")


def import_answers(folder: Path, path: Path, who: str = "") -> Outcome:
    """Store the answers of a file: a CSV with columns index and label, or an export of Label Studio (JSON, JSON-MIN).

    What is not a good answer is refused with its line, and the rest is kept.

    Raises:
        ValueError: The folder is not that of a run that asks people.
        OSError: The file cannot be read, or the answers cannot be written.
    """
    found = list(read_answers(path.read_bytes()))
    answers = [answer for answer in found if isinstance(answer, Answer)]
    refused = [refusal for refusal in found if isinstance(refusal, Refusal)]
    outcome = store_answers(folder, answers, who)
    lines = sorted([*refused, *outcome.refused], key=lambda refusal: refusal.line or 0)
    return replace(outcome, refused=lines)


def read_answers(data: bytes) -> list[Answer | Refusal]:
    """The answers in a file, and the lines that are none; whether they were asked for is not known here."""
    encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding, errors="strict" if encoding == "utf-16" else "surrogateescape")
    except UnicodeDecodeError as error:
        return [Refusal(line=1, reason=f"this is not text in {encoding} ({error}). Save it as UTF-8.")]
    if "\0" in text:
        return [Refusal(line=1 + text[: text.index("\0")].count("\n"), reason="there is a zero byte: this is no text.")]
    if not text.strip():
        return [Refusal(line=1, reason="the file is empty.")]
    is_json = text.lstrip()[0] in "[{"
    found = [with_verdict(entry) for entry in (read_export(text) if is_json else read_table(text))]
    return found or [Refusal(line=1, reason="there is no answer in this file.")]


def with_verdict(entry: Answer | Refusal) -> Answer | Refusal:
    """An answer whose label says that there is none."""
    if isinstance(entry, Refusal) or entry.label is None:
        return entry
    if entry.label.lower() in SKIP:
        return replace(entry, verdict="skip")
    return replace(entry, verdict="cannot_tell") if entry.label.lower() in CANNOT_TELL else entry
