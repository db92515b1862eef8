"""`lightning-diffal`: studies (`run`, `report`, `demo`), the folder of a run (`check`, `repair`, `correct`), people."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lightning_diffal.labeling.commands import add_labeling_commands
from lightning_diffal.labeling.page.serve import add_label_command
from lightning_diffal.pool.folder.check import LEDGER
from lightning_diffal.pool.folder.commands import add_folder_commands
from lightning_diffal.studies.definitions import STUDIES, Study
from lightning_diffal.studies.results import Result, summary_table
from lightning_diffal.studies.run_spec import Run, plan
from lightning_diffal.studies.selector_registry import PAPER_SELECTORS, SELECTORS
from lightning_diffal.studies.worker_pool import run_all

# The numbers of a study that are options of `run`.
NUMBERS = {
    "budget": "labels in total",
    "query_size": "labels queried after each fit",
    "first": "initial labels of each class",
    "epochs": "epochs of each fit",
    "batch_size": "training batch size",
    "pool": "points that may be queried",
    "candidates": "unlabeled points that a query sees",
    "neighbors": "K of the graph",
    "steps": "T of the diffusion",
    "mini_batch": "P, points chosen between two diffusions",
    "passes": "forward passes of dropout selectors",
    "squares": "checkerboard only: squares on a side",
    "test": "checkerboard only: test points",
}
DATA = Path("data")
# Each of them trained on labels alone, and those below also on diffused labels.
DEMO_SELECTORS = ("coverage", "diffusion", "random", "margin", "coreset")
DEMO_LEARNING = ("coverage", "random")
DEMO_SEEDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code: 0, 1 if a run failed, 2 for wrong arguments, 130 after Ctrl-C."""
    given = parser().parse_args(arguments)
    try:
        return int(given.execute(given))
    except (ValueError, OSError) as error:
        print(f"lightning-diffal {given.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped. The same command continues from here; at most one round per run is lost.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="lightning-diffal",
        description="Label, report, check and repair runs; run active-learning studies.",
    )
    commands = top.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run a study; finished runs are not repeated")
    runs.add_argument("study", choices=STUDIES)
    runs.add_argument(
        "--selector",
        action="append",
        metavar="NAME",
        help=f"may be given several times; one of {', '.join(SELECTORS)}. Default: the first {len(PAPER_SELECTORS)}, "
        "which the paper compares",
    )
    runs.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0 (%(default)s)")
    runs.add_argument("--data", type=Path, help=f"folder of NAME.npz files and downloads (default: {DATA})")
    runs.add_argument("--out", type=Path, default=Path("results"), help="folder for the results (%(default)s)")
    runs.add_argument("--workers", type=int, help="processes (default: one per core, or one with a GPU)")
    runs.add_argument(
        "--dataset", metavar="NAME", help="run this study's network on NAME.npz (or NAME_efficientnet.npz)"
    )
    for name, meaning in NUMBERS.items():
        defaults = ", ".join(
            f"{study.name} {getattr(study, name)}" for study in STUDIES.values() if getattr(study, name)
        )
        runs.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"{meaning} ({defaults or 'all'})")
    runs.add_argument(
        "--shrink-below", type=float, metavar="SHARE", help="δ of the diffusion, 0 to keep T (cifar10 0.1, svhn 0.1)"
    )
    runs.add_argument(
        "--features",
        metavar="WHAT",
        help="fixed features, for selectors that use them and for --learn-from-graph: inputs (the default), auto, a "
        "layer of the untrained network such as layers.1, or none for the learned embedding",
    )
    runs.add_argument(
        "--learn-from-graph", action="store_true", help="also train on unlabeled points with diffused labels"
    )
    runs.set_defaults(execute=run)
    reports = commands.add_parser("report", help="write an HTML page and figures about a run, or about studies")
    reports.add_argument("results", type=Path, metavar="DIR", help="the folder of a run, or the --out folder of `run`")
    reports.add_argument("--out", type=Path, help="folder for the report (default: DIR/report)")
    reports.add_argument(
        "--selector", action="append", metavar="NAME", help="of studies: only these; may be given several times"
    )
    reports.set_defaults(execute=report)
    demos = commands.add_parser(
        "demo", help=f"compare {len(DEMO_SELECTORS)} selectors on scikit-learn's digits, in about two minutes"
    )
    demos.add_argument("--out", type=Path, default=Path("demo"), help="folder for results and report (%(default)s)")
    demos.set_defaults(execute=demo)
    add_folder_commands(commands)
    add_labeling_commands(commands)
    add_label_command(commands)
    return top


def study_of(given: argparse.Namespace) -> Study:
    """The study with the options that were given."""
    study = STUDIES[given.study]
    changes = {name: value for name in (*NUMBERS, "shrink_below") if (value := getattr(given, name)) is not None}
    for name in ("squares", "test"):
        if name in changes and study.squares is None:
            raise ValueError(f"--{name} {changes[name]}: this is an option of the checkerboard, not of {study.name}.")
    if not 0 <= changes.get("shrink_below", 0) <= 1:
        raise ValueError(f"--shrink-below {given.shrink_below}: a fraction of the pool in [0, 1] is needed.")
    if given.dataset is not None and given.dataset != study.dataset:
        changes |= dataset_changes(study, given.dataset, given.data or DATA)
    if given.features is not None:
        changes["graph_features"] = given.features
    return replace(study, learn_from_graph=given.learn_from_graph, **changes)


def dataset_changes(study: Study, dataset: str, data: Path) -> dict[str, Any]:
    """Another data set is another study, in its own folder of results."""
    if study.squares is not None:
        raise ValueError(f"--dataset {dataset}: the checkerboard is generated, not read. mnist-fc takes any data.")
    if not re.fullmatch(r"\w[\w.-]*", dataset):
        # The name becomes part of paths under --data and --out.
        raise ValueError(
            f"--dataset {dataset}: a name of letters, digits, '_', '-' and '.' is needed, not a path. "
            "--data names the folder of its .npz file."
        )
    if study.components is not None and (data / f"{dataset}_efficientnet.npz").exists():
        dataset = f"{dataset}_efficientnet"
    return {} if dataset == study.dataset else {"dataset": dataset, "name": f"{study.name}-{dataset}"}


def runs_of(given: argparse.Namespace) -> list[Run]:
    selectors = list(dict.fromkeys(given.selector or PAPER_SELECTORS))
    unknown = [name for name in selectors if name not in SELECTORS]
    if unknown:
        raise ValueError(f"--selector {unknown[0]}: there is no such selector. Available: {', '.join(SELECTORS)}.")
    for name in (*NUMBERS, "seeds", "workers"):
        if (count := getattr(given, name)) is not None and count < 1:
            raise ValueError(f"--{name.replace('_', '-')} {count}: an integer of at least 1 is needed.")
    study = study_of(given)
    data = given.data or DATA
    if study.squares is None and given.data is not None and not data.is_dir():
        raise ValueError(f"--data {data}: there is no such folder. It should hold {study.dataset}.npz.")
    return plan(study, selectors, range(given.seeds), data, given.out)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(given: argparse.Namespace) -> int:
    return run_and_summarize(runs_of(given), given)


def run_and_summarize(runs: Sequence[Run], given: argparse.Namespace) -> int:
    failures = run_all(runs, given.workers or (1 if torch.cuda.is_available() else cores()))
    print(summary_table([Result.read(run.result) for run in runs if run.result.exists()]))
    print(f"\nResults: {given.out}")
    for failed, why in failures:
        print(f"\nFailed: {failed}\n{why}", file=sys.stderr)
    return 1 if failures else 0


def report(given: argparse.Namespace) -> int:
    """Of a run, if the folder holds a ledger, else of the results of studies."""
    try:
        from lightning_diffal.report.run import write_run_report  # noqa: PLC0415, needs an extra
        from lightning_diffal.studies.report import write_report  # noqa: PLC0415, needs an extra
    except ImportError as error:
        raise ValueError(f"{error}. A report needs `pip install lightning-diffal[experiments]`.") from error
    if (given.results / LEDGER).exists():
        if given.selector:
            raise ValueError(
                f"--selector {given.selector[0]}: {given.results} is the folder of one run, with one selector."
            )
        path = write_run_report(given.results, given.out)
    else:
        path = write_report(given.results, given.out, given.selector)
    print(f"Report: {path}")
    return 0


def demo(given: argparse.Namespace) -> int:
    """`run digits` and `report`, with a verdict in words between them."""
    runs = []
    for selectors, learning in ((DEMO_SELECTORS, []), (DEMO_LEARNING, ["--learn-from-graph"])):
        names = [argument for name in selectors for argument in ("--selector", name)]
        command = ["run", "digits", *names, *learning, "--seeds", str(DEMO_SEEDS), "--out", str(given.out)]
        runs += runs_of(parser().parse_args(command))
    failed = run_and_summarize(runs, parser().parse_args(command))
    if failed:
        return failed
    from lightning_diffal.studies.report import verdicts  # noqa: PLC0415, needs an extra

    for verdict in verdicts(given.out):
        print(f"\n{verdict}")
    print("This is one small data set; on other data the order differs, see docs/results.md.\n")
    return report(parser().parse_args(["report", str(given.out)]))


if __name__ == "__main__":
    sys.exit(main())
