"""`query_003.csv` and `query_003.json`: the questions of a round, for a spreadsheet and for Label Studio."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from lightning_diffal.labeling.question import Question
from lightning_diffal.pool.folder.files import write_atomically

COLUMNS: Final = ("index", "label", "path", "text", "prediction", "probability", "diffused", "reason", "score")
AUDIT: Final = "audit"
CURRENT: Final = "current_label"


def query_name(round_number: int) -> str:
    return f"query_{round_number:03d}"


def write_questions(
    folder: Path, name: str, questions: Sequence[Question], url: Callable[[str], str] | None = None
) -> list[Path]:
    """Write both files, each whole or not at all.

    Args:
        name: Of the files, without their endings.
        url: The address under which Label Studio finds a file, given its path. By default the path itself.
    """
    table, tasks = folder / f"{name}.csv", folder / f"{name}.json"

    def write_table(path: Path) -> None:
        # With a byte order mark, without which Excel takes UTF-8 for another encoding.
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            columns = COLUMNS if name != AUDIT else (*COLUMNS[:2], CURRENT, *COLUMNS[2:])
            writer = csv.DictWriter(file, columns, extrasaction="ignore", restval="")
            writer.writeheader()
            writer.writerows(content_of(question) for question in questions)

    def write_tasks(path: Path) -> None:
        path.write_text(json.dumps([task(question, url) for question in questions], indent=1), encoding="utf-8")

    write_atomically(table, write_table)
    write_atomically(tasks, write_tasks)
    return [table, tasks]


def task(question: Question, url: Callable[[str], str] | None) -> dict[str, Any]:
    """A task of Label Studio: `data` is what its labeling interface refers to, as `$image` or `$text`."""
    data = content_of(question)
    if question.path is not None:
        data["image"] = url(question.path) if url is not None else question.path
    return {"data": data}


def content_of(question: Question) -> dict[str, Any]:
    """A question whose label is still to be given; the one that an audit doubts has another name."""
    content = question.to_json()
    if question.label is not None:
        content[CURRENT] = content.pop("label")
    return content


def read_questions(folder: Path, name: str) -> list[Question]:
    """The questions in the file for Label Studio.

    Raises:
        ValueError: It is not there, or is not what `write_questions` wrote.
    """
    path = folder / f"{name}.json"
    try:
        tasks = [task["data"] for task in json.loads(path.read_text(encoding="utf-8"))]
        return [Question.from_json({**data, "label": data.get(CURRENT)}) for data in tasks]
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error}).") from error
