"""`lightning-diffal check`, `repair` and `correct`: commands about the folder of one run."""

import argparse
import sys
from pathlib import Path

from lightning_diffal.pool.folder.check import check_run, read_run
from lightning_diffal.pool.folder.folder_lock import FolderInUseError, Owner, is_locked
from lightning_diffal.pool.folder.repair import correct_labels, repair_run


def add_folder_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    check = commands.add_parser("check", help="whether the folder of a run is intact; exit code 1 if not")
    repair = commands.add_parser("repair", help="do what is safe about a damaged run, and keep a copy")
    correct = commands.add_parser("correct", help="change one label that was given; the ledger keeps both")
    for command in (check, repair, correct):
        command.add_argument("folder", type=Path, metavar="DIR", help="the folder that holds rounds.jsonl")
    correct.add_argument("index", type=int, metavar="INDEX", help="of the point, in the training dataset")
    correct.add_argument("label", type=int, metavar="LABEL", help="its class, counted from 0")
    check.set_defaults(execute=check_folder)
    repair.set_defaults(execute=repair_folder)
    correct.set_defaults(execute=correct_label)


def check_folder(given: argparse.Namespace) -> int:
    """0 if the run is intact, else 1 and all problems."""
    problems = check_run(given.folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    if is_locked(given.folder):
        print(f"In use by {Owner.read(given.folder) or 'another process'}.")
    if problems:
        print(
            f"{given.folder} is damaged: {len(problems)} problems. `lightning-diffal repair` fixes what it safely can."
        )
        return 1
    files = read_run(given.folder)
    rounds, waiting = len(files.records), len(set(files.answers.labels if files.answers else ()) - set(files.labels))
    more = f" {waiting} answers wait for their round." if waiting else ""
    print(f"{given.folder} is intact: {rounds} rounds, {len(files.labels)} labels.{more}")
    return 0


def repair_folder(given: argparse.Namespace) -> int:
    """0 if the run is intact afterwards, else 1 and what is left."""
    try:
        done = repair_run(given.folder)
    except FolderInUseError as error:
        raise ValueError(str(error)) from error
    for line in done:
        print(line)
    return check_folder(given)


def correct_label(given: argparse.Namespace) -> int:
    try:
        done = correct_labels(given.folder, {given.index: given.label})
    except FolderInUseError as error:
        raise ValueError(str(error)) from error
    for line in done:
        print(line)
    return 0
