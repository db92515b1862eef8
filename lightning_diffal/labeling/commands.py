"""`lightning-diffal status` and `answers`: what a run waits for, and what people have answered."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.collect import waiting_for
from lightning_diffal.labeling.corrections import apply_corrections
from lightning_diffal.labeling.import_answers import import_answers
from lightning_diffal.labeling.question import Outcome
from lightning_diffal.pool.folder.check import RunFiles, read_run
from lightning_diffal.pool.folder.folder_lock import Owner, is_locked
from lightning_diffal.pool.folder.repair import user_name
from lightning_diffal.pool.history import History
from lightning_diffal.pool.ledger_entries import awaited_round

# Exit codes beside 0, 2 for wrong arguments and 1 for what is damaged or was refused.
WAITING: Final = 4


def add_labeling_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    status = commands.add_parser(
        "status", help=f"round, labels, accuracy, and what a run waits for; exit code {WAITING} while people are asked"
    )
    answers = commands.add_parser(
        "answers", help="import a filled-in CSV or an export of Label Studio; exit code 1 if lines were refused"
    )
    for command in (status, answers):
        command.add_argument("folder", type=Path, metavar="DIR", help="the folder that holds rounds.jsonl")
        command.add_argument("--json", action="store_true", help="print one JSON object")
    answers.add_argument("file", type=Path, metavar="FILE", help="CSV with columns index and label, JSON or JSON-MIN")
    answers.add_argument("--who", default="", metavar="NAME", help="who answered (default: the name of the user)")
    status.set_defaults(execute=print_status)
    answers.set_defaults(execute=take_answers)


def print_status(given: argparse.Namespace) -> int:
    """0, WAITING while people have to answer, 1 if the ledger is damaged."""
    status = status_of(given.folder)
    print(json.dumps(status) if given.json else describe(status))
    return WAITING if status["state"] == "waiting" else 1 if status["problems"] else 0


def status_of(folder: Path) -> dict[str, Any]:
    """What the folder of a run says about it. Needs neither its script nor its dataset, and no lock."""
    if not (folder / "rounds.jsonl").exists():
        raise ValueError(f"{folder}: this is not the folder of a run, it has no rounds.jsonl.")
    files = read_run(folder)
    records = files.records
    answers = Annotations(folder).latest
    waiting = waiting_for(folder, files.entries, answers, "all")
    metrics = next((record.metrics for record in reversed(records) if record.metrics), {})
    owner = Owner.read(folder) if is_locked(folder) else None
    return {
        "folder": str(folder),
        "state": state_of(files, waiting is not None, owner is not None),
        "round": records[-1].round if records else None,
        "labels": len(files.labels),
        "metric": History(records).main_metric() if metrics else None,
        "metrics": metrics,
        "waiting": asdict(waiting) if waiting is not None else None,
        "in_use_by": str(owner) if owner is not None else None,
        "problems": [str(problem) for problem in files.ledger_problems],
    }


def state_of(files: RunFiles, waiting: bool, in_use: bool) -> str:
    """The states of a run, as docs/reliability.md lists them."""
    if waiting:
        return "waiting"
    if awaited_round(files.entries) is not None:
        return "answered"
    if files.records and files.records[-1].last is not None:
        return "over"
    return "running" if in_use else "stopped"


DESCRIPTIONS: Final = {
    "waiting": "waiting for people",
    "answered": "answered: the script can be started again",
    "over": "over",
    "running": "running",
    "stopped": "stopped: the script can be started again",
}


def describe(status: dict[str, Any]) -> str:
    lines = [f"{status['folder']}: {DESCRIPTIONS[status['state']]}"]
    metric, waiting = status["metric"], status["waiting"]
    value = status["metrics"].get(metric)
    accuracy = f", {metric} {value:.4g}" if value is not None else ""
    if status["round"] is not None:
        lines.append(f"round {status['round']}, {status['labels']} labels{accuracy}")
    if waiting is not None:
        lines.append(f"{waiting['answered']} of {len(waiting['indices'])} points answered, asked {waiting['since']}")
        lines.append(f"questions: {', '.join(waiting['files'])}")
    if status["in_use_by"] is not None:
        lines.append(f"in use by {status['in_use_by']}")
    return "\n".join([*lines, *status["problems"]])


def take_answers(given: argparse.Namespace) -> int:
    """0 if every line was taken, 1 if some were refused; the others are kept."""
    outcome = import_answers(given.folder, given.file, given.who or user_name())
    corrected = apply_corrections(given.folder)
    print(json.dumps(summary(outcome)) if given.json else report(given.file, outcome))
    if corrected and not given.json:
        print(f"{len(corrected)} labels that the run had used were corrected; the ledger keeps both.")
    return 1 if outcome.refused else 0


def summary(outcome: Outcome) -> dict[str, Any]:
    return {
        "stored": [answer.index for answer in outcome.stored],
        "unchanged": [answer.index for answer in outcome.unchanged],
        "refused": [asdict(refusal) for refusal in outcome.refused],
    }


def report(path: Path, outcome: Outcome) -> str:
    for refusal in outcome.refused:
        print(f"{path}, {refusal}", file=sys.stderr)
    unchanged = f", {len(outcome.unchanged)} were there already" if outcome.unchanged else ""
    return f"{len(outcome.stored)} answers stored{unchanged}, {len(outcome.refused)} lines refused."
