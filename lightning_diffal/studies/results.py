"""The result of one run of a study: a small JSON file, written atomically. Reports read nothing else."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lightning_diffal.pool.folder.files import write_atomically

LEARNING = ", learning from the graph"


@dataclass(frozen=True, kw_only=True)
class Round:
    """A fit, and the query after it."""

    labels: int
    """Labels the fit was trained on."""
    accuracy: float
    """On the test set, after the fit."""
    asked: list[int]
    """The points queried after the fit, as indices into the pool; empty after the last fit."""
    reached: list[bool | None]
    """For each of them, whether a label had reached it: False explores, True refines, None without a graph."""
    unreached: int | None
    """Number of unlabeled points that no label had reached before the query."""
    seconds: dict[str, float]
    """Of the fit and of each stage of the query: "fit", "embedding", "graph", "query"."""
    calibration_error: float | None = None
    """Expected calibration error on the test set, 15 bins; None in results of earlier versions."""
    graph_recall: float | None = None
    """The recall of an approximate graph; None if it is exact."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One study with one selector and one seed, from the first labels to the last fit."""

    study: str
    selector: str
    """The name on the command line, e.g. "diffusion"."""
    seed: int
    settings: dict[str, Any]
    """Everything but the seed that determines the outcome: the study's numbers, the selector and its parameters."""
    initial: list[int]
    """The first labels, as indices into the pool."""
    rounds: list[Round]
    points: dict[str, list[float]] = field(default_factory=dict)
    """Coordinates of every labeled point by index, for pools in the plane."""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def series(self) -> str:
        """The selector, and whether fits learned from the graph: runs that differ in this are not averaged."""
        return f"{self.selector}{LEARNING}" if self.settings.get("learn_from_graph") else self.selector

    @property
    def path(self) -> Path:
        """Relative to the folder of all results."""
        return result_path(self.study, self.selector, self.seed, self.settings)

    def write(self, folder: Path) -> Path:
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps(asdict(self), allow_nan=False, separators=(",", ":")) + "\n"
        write_atomically(path, lambda temporary: temporary.write_text(content))
        return path

    @staticmethod
    def read(path: Path) -> "Result":
        try:
            content = json.loads(path.read_text())
            rounds = [Round(**known_fields(Round, row)) for row in content.pop("rounds")]
            return Result(rounds=rounds, **known_fields(Result, content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: this is not a result of `lightning-diffal run` ({error}).") from error


def result_path(study: str, selector: str, seed: int, settings: dict[str, Any]) -> Path:
    """STUDY/SELECTOR-SEED-KEY.json, with a hash of the settings as KEY."""
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return Path(study) / f"{selector}-{seed}-{key}.json"


def known_fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Without fields that a later version added."""
    names = {part.name for part in fields(kind)}
    return {name: value for name, value in content.items() if name in names}


def read_results(folder: Path) -> list[Result]:
    """All results under a folder, sorted by path."""
    return [Result.read(path) for path in sorted(folder.glob("*/*.json"))]


def summary_table(results: Sequence[Result]) -> str:
    """Markdown: one line for each selector, the best mean accuracy first, as mean ± standard deviation over seeds."""
    rows = []
    for series in dict.fromkeys(result.series for result in results):
        runs = [result for result in results if result.series == series]
        means = [fmean(step.accuracy for step in run.rounds) for run in runs]
        lasts = [run.rounds[-1].accuracy for run in runs]
        labels = max(run.rounds[-1].labels for run in runs)
        seconds = fmean(sum(sum(step.seconds.values()) for step in run.rounds) for run in runs)
        row = [series, str(len(runs)), mean_and_spread(means), mean_and_spread(lasts), str(labels), f"{seconds:.0f}"]
        rows.append((fmean(means), row))
    head = ["selector", "seeds", "mean accuracy", "last accuracy", "labels", "seconds a run"]
    ranked = [row for _, row in sorted(rows, key=lambda entry: -entry[0])]
    lines = [head, ["---"] * len(head), *ranked]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def mean_and_spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
