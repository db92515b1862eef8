"""Whether labels that diffuse over the graph are right as often as they are expected to be."""

import json
from typing import Any

from lightning_diffal.report.charts import Chart, Figure, Line, Table, number_axis
from lightning_diffal.report.run.metric_figures import MAIN
from lightning_diffal.report.run.run_data import RunData
from lightning_diffal.report.style import DASHED, Style

FILE = "reliability.json"
EXACT = Style("grey", dash=DASHED)
PERCENT = [0.0, 0.25, 0.5, 0.75, 1.0]


def reliability_figure(run: RunData) -> Figure | None:
    """Accuracy against expected accuracy of labeled points, each predicted from the others; None if it is not known.

    `active.predict_labels()` writes what it is drawn from, as does the end of a run that learns from the graph.
    """
    found = read_reliability(run)
    if found is None:
        return None
    bins = found["bins"]
    expected, accuracy = [part["expected"] for part in bins], [part["accuracy"] for part in bins]
    mean = sum(part["count"] * part["expected"] for part in bins) / found["points"]
    drawn = "" if found["points"] == found["labels"] else f", {found['points']:,} of them drawn"
    finding = (
        f"{found['labels']:,} labels{drawn}, each predicted from the others: "
        f"{mean:.1%} were expected to be right, {found['accuracy']:.1%} are. The mean error of what was expected is "
        f"{found['calibration_error']:.1%}."
    )
    line = Line(
        x=expected,
        y=accuracy,
        low=[part["low"] for part in bins],
        high=[part["high"] for part in bins],
        style=MAIN,
        series=0,
        marker_step=1,
    )
    chart = Chart(
        title="Accuracy of diffused labels",
        description=f"Accuracy against expected accuracy. {finding}",
        x=number_axis(0.0, 1.0, "expected accuracy", PERCENT),
        y=number_axis(0.0, 1.0, "accuracy", PERCENT),
        marks=[Line(x=[0.0, 1.0], y=[0.0, 1.0], style=EXACT, series=0), line],
        height=260,
    )
    rows = [
        [
            f"{part['expected']:.1%}",
            f"{part['count']:,}",
            f"{part['accuracy']:.1%}",
            f"{part['low']:.1%} to {part['high']:.1%}",
        ]
        for part in bins
    ]
    return Figure(
        title="Reliability of diffused labels",
        caption=f"{finding} The band is the 95% interval of each accuracy; on the dashed line both are equal.",
        charts=[chart],
        table=Table(
            caption="Labeled points by the expected accuracy of the label that diffuses to them",
            head=["expected", "points", "right", "95% interval"],
            rows=rows,
        ),
    )


def read_reliability(run: RunData) -> dict[str, Any] | None:
    """What was written; None if it was not, or not whole: `predict_labels` writes it again."""
    try:
        content: dict[str, Any] = json.loads((run.folder / FILE).read_text(encoding="utf-8"))
        return content if content["bins"] and content["points"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
