"""Results as a Markdown table."""

import statistics
from collections.abc import Sequence

from lightning_diffal.studies.results import Result


def summary_table(results: Sequence[Result]) -> str:
    """One line for each selector, the best mean accuracy first: mean ± standard deviation over its seeds."""
    by_selector: dict[str, list[Result]] = {}
    for result in results:
        by_selector.setdefault(result.selector, []).append(result)
    rows = []
    for selector, runs in by_selector.items():
        means = [statistics.mean(step.accuracy for step in run.rounds) for run in runs]
        lasts = [run.rounds[-1].accuracy for run in runs]
        seconds = statistics.mean(sum(sum(step.seconds.values()) for step in run.rounds) for run in runs)
        labels = max(run.rounds[-1].labels for run in runs)
        rows.append(
            (
                statistics.mean(means),
                [selector, str(len(runs)), spread(means), spread(lasts), str(labels), f"{seconds:.0f}"],
            )
        )
    head = ["selector", "seeds", "mean accuracy", "last accuracy", "labels", "seconds a run"]
    lines = [head, ["---"] * len(head), *(cells for _, cells in sorted(rows, key=lambda row: -row[0]))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def spread(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.3f}"
