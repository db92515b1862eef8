"""What an approximate graph, and queries that see a tenth of the pool, cost in accuracy.

    python benchmarks/bench_shortcuts_vs_accuracy.py --data DIR --out DIR --studies mnist-fc cifar10-efficientnet

Learning curves of a study with each shortcut minus those without, paired by seed: the same pool, first labels and
initial weights. Means over the fits of a curve and at its last fit, with 95% Student-t intervals over seeds. CPU
seconds of one thread. All runs should be of one machine: on another CPU fits round differently, and queries follow.

The coverage selector has no argument for the search; here it is given the approximate graph of its features.
"""

import argparse
import logging
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from lightning_diffal.graph.neighbor_graph import build_graph
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.coverage import CoverageSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot, timed_graph
from lightning_diffal.studies.definitions import STUDIES, Study
from lightning_diffal.studies.execute import execute
from lightning_diffal.studies.report.statistics import Interval, paired_difference
from lightning_diffal.studies.results import Result
from lightning_diffal.studies.run_spec import plan
from lightning_diffal.studies.selector_registry import SELECTORS

EXACT, APPROXIMATE, TENTH = "exact", "approximate", "tenth"


@dataclass(frozen=True, kw_only=True)
class ApproximateCoverage(CoverageSelector):
    """The same on an approximate graph of the features, which are the same in every round."""

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        build = partial(build_graph, backend="approximate", ranks=snapshot.ranks)
        snapshot.graphs["features", self.neighbors] = timed_graph(timer, build, snapshot.fixed_points, self.neighbors)
        return super().select(snapshot, size, generator, timer)


SELECTORS["diffusion-approximate"] = lambda study: replace(SELECTORS["diffusion"](study), backend="approximate")  # type: ignore[type-var]
SELECTORS["coverage-approximate"] = lambda study: ApproximateCoverage(neighbors=study.neighbors)


def results_of(study: Study, selector: str, shortcut: str, given: Any) -> dict[int, Result]:
    """The result of each seed; those without a file are run."""
    study = replace(study, budget=given.budget or study.budget)
    if shortcut == TENTH:
        study = replace(study, candidates=study.pool // 10)
    name = f"{selector}-approximate" if shortcut == APPROXIMATE else selector
    runs = plan(study, [name], range(given.seeds), given.data, given.out)
    return {run.seed: Result.read(run.result if run.result.exists() else execute(run)) for run in runs}


def row_of(study: str, selector: str, runs: dict[int, Result], exact: dict[int, Result]) -> str:
    curve, last = (
        paired_difference(
            {seed: accuracy(run) for seed, run in runs.items()}, {seed: accuracy(run) for seed, run in exact.items()}
        )
        for accuracy in (mean_accuracy, lambda run: run.rounds[-1].accuracy)
    )
    recalls = [step.graph_recall for run in runs.values() for step in run.rounds if step.graph_recall is not None]
    about = f"approximate, recall {min(recalls):.3f} to {max(recalls):.3f}" if recalls else "a tenth of the pool"
    shared = fmean(shared_labels(run, exact[seed]) for seed, run in runs.items())
    seconds = " to ".join(f"{fmean(map(query_seconds, side.values())):.1f}" for side in (exact, runs))
    mean = f"{fmean(map(mean_accuracy, exact.values())):.3f}"
    return (
        f"| {study} | {selector} | {about} | {len(runs)} | {mean} | {signed(curve)} | {signed(last)} | {shared:.0%} "
        f"| {seconds} |"
    )


def mean_accuracy(run: Result) -> float:
    return fmean(step.accuracy for step in run.rounds)


def shared_labels(run: Result, other: Result) -> float:
    """The share of the points asked for that the other run asked for, too."""
    asked, by_other = ({point for step in one.rounds for point in step.asked} for one in (run, other))
    return len(asked & by_other) / len(asked)


def query_seconds(run: Result) -> float:
    """Of all stages but the fit."""
    return sum(sum(step.seconds.values()) - step.seconds["fit"] for step in run.rounds)


def signed(difference: Interval | None) -> str:
    if difference is None or difference.half is None:
        return "" if difference is None else f"{difference.mean:+.4f}"
    return f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of NAME.npz files")
    parser.add_argument("--out", type=Path, required=True, help="folder for results; finished runs are not repeated")
    parser.add_argument("--studies", nargs="+", default=["mnist-fc", "cifar10-efficientnet"], choices=STUDIES)
    parser.add_argument("--selectors", nargs="+", default=["diffusion", "coverage"])
    parser.add_argument("--shortcuts", nargs="+", default=[APPROXIMATE, TENTH], choices=[APPROXIMATE, TENTH])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, help="labels in total, instead of the study's")
    given = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # CPU seconds: what every stage is timed with
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    print(f"torch {torch.__version__}, one thread\n")
    print(
        "| study | selector | shortcut | seeds | mean accuracy without | difference of the mean | of the last fit "
        "| same points asked | CPU seconds of all queries, without to with |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name in given.studies:
        for selector in given.selectors:
            exact = results_of(STUDIES[name], selector, EXACT, given)
            for shortcut in given.shortcuts:
                runs = results_of(STUDIES[name], selector, shortcut, given)
                print(row_of(name, selector, runs, exact), flush=True)


if __name__ == "__main__":
    main()
