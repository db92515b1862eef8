"""`lightning-diffal run STUDY` and `lightning-diffal report DIR`."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import torch

from lightning_diffal.studies.named_selectors import OF_THE_PAPER, SELECTORS
from lightning_diffal.studies.results import Result
from lightning_diffal.studies.runner import run_all
from lightning_diffal.studies.runs import Run, plan
from lightning_diffal.studies.studies import STUDIES, Study
from lightning_diffal.studies.table import table

# Numbers of a study that the command line may change, and what they are.
NUMBERS = {
    "budget": "labels in total",
    "query_size": "labels asked after each fit",
    "first": "first labels of each class",
    "epochs": "epochs of each fit",
    "batch_size": "points in a batch of training",
    "pool": "points that may be asked about",
    "neighbors": "K of the graph",
    "steps": "T of the diffusion",
    "mini_batch": "P, the points chosen between two diffusions",
    "passes": "forward passes of the selectors by dropout",
    "squares": "of the checkerboard: squares on a side",
    "test": "of the checkerboard: points to measure accuracy on",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code: 0, 1 if a run failed, 2 for what was asked wrongly, 130 after Ctrl-C."""
    given = parser().parse_args(arguments)
    try:
        return report(given) if given.command == "report" else run(given)
    except ValueError as error:
        print(f"lightning-diffal {given.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\nStopped. The same command goes on where it was; no more than the round under way is lost.",
            file=sys.stderr,
        )
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lightning-diffal", description="The studies of the paper, and their report.")
    commands = top.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run a study; what has a result already is not run again")
    runs.add_argument("study", choices=STUDIES)
    runs.add_argument(
        "--selector",
        action="append",
        metavar="NAME",
        help=f"who chooses; may be given several times. Of {', '.join(SELECTORS)}. By default the first "
        f"{len(OF_THE_PAPER)}, which the paper compares",
    )
    runs.add_argument("--seeds", type=int, default=5, help="how many, from 0 (%(default)s)")
    runs.add_argument(
        "--data", type=Path, help="folder of NAME.npz files; by default data, where torchvision may download"
    )
    runs.add_argument("--out", type=Path, default=Path("results"), help="folder of results (%(default)s)")
    runs.add_argument("--workers", type=int, help="processes; by default one for each core, or one with a GPU")
    runs.add_argument("--dataset", metavar="NAME", help="another data set, NAME.npz, for this study's network")
    for name, meaning in NUMBERS.items():
        defaults = ", ".join(
            f"{study.name} {getattr(study, name)}" for study in STUDIES.values() if getattr(study, name)
        )
        runs.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"{meaning} ({defaults})")
    runs.add_argument(
        "--shrink-below", type=float, metavar="SHARE", help="δ of the diffusion, 0 to keep T (cifar10 0.1, svhn 0.1)"
    )
    reports = commands.add_parser("report", help="one HTML page and figures from result files")
    reports.add_argument("results", type=Path, metavar="DIR", help="the folder that was --out of `run`")
    reports.add_argument("--out", type=Path, help="folder for the report; by default DIR/report")
    return top


def study_of(given: argparse.Namespace) -> Study:
    """The study that was asked for, with the numbers that were given."""
    study = STUDIES[given.study]
    changes = {part.name: getattr(given, part.name) for part in fields(Study) if part.name in NUMBERS}
    for name, value in changes.items():
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} {value}: a whole number of at least 1 is needed.")
        if value is not None and getattr(study, name) is None:
            raise ValueError(f"--{name} {value}: this is a number of the checkerboard, not of {study.name}.")
    if given.shrink_below is not None:
        if not 0 <= given.shrink_below <= 1:
            raise ValueError(f"--shrink-below {given.shrink_below}: a share of the pool in [0, 1] is needed.")
        changes["shrink_below"] = given.shrink_below
    if given.dataset is not None and given.dataset != study.dataset:
        if study.squares is not None:
            raise ValueError(
                f"--dataset {given.dataset}: the checkerboard is drawn, not read. mnist-fc takes any data."
            )
        # Another data set is another study, in its own folder of results.
        changes |= {"dataset": given.dataset, "name": f"{study.name}-{given.dataset}"}
    return replace(study, **{name: value for name, value in changes.items() if value is not None})


def runs_of(given: argparse.Namespace) -> list[Run]:
    selectors = list(dict.fromkeys(given.selector or OF_THE_PAPER))
    unknown = [name for name in selectors if name not in SELECTORS]
    if unknown:
        raise ValueError(f"--selector {unknown[0]}: there is no such selector. There are {', '.join(SELECTORS)}.")
    for name in ("seeds", "workers"):
        count = getattr(given, name)
        if count is not None and count < 1:
            raise ValueError(f"--{name} {count}: a whole number of at least 1 is needed.")
    study = study_of(given)
    data = given.data or Path("data")
    if study.squares is None and given.data is not None and not data.is_dir():
        raise ValueError(f"--data {data}: there is no such folder. It should hold {study.dataset}.npz.")
    return plan(study, selectors, range(given.seeds), data, given.out)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(given: argparse.Namespace) -> int:
    runs = runs_of(given)
    failures = run_all(runs, given.workers or (1 if torch.cuda.is_available() else cores()))
    print(table([Result.read(run.result) for run in runs if run.result.exists()]))
    print(f"\nThe results are in {given.out}")
    for failed, why in failures:
        print(f"\nFailed: {failed}\n{why}", file=sys.stderr)
    return 1 if failures else 0


def report(given: argparse.Namespace) -> int:
    if not given.results.is_dir():
        raise ValueError(f"{given.results}: there is no such folder. `lightning-diffal run` writes one.")
    try:
        from lightning_diffal.studies.report import report_on  # noqa: PLC0415, it draws, which takes a second to import

    except ImportError as error:
        raise ValueError(f"{error}. `pip install lightning-diffal[experiments]` brings what a report needs.") from error
    print(f"The report is {report_on(given.results, given.out or given.results / 'report')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
