"""Metrics against labels."""

from collections.abc import Sequence

from lightning_diffal.report.charts import Chart, Figure, Line, Number, Table, label_axis, number_axis, ticks
from lightning_diffal.report.run.run_data import RunData
from lightning_diffal.report.style import Style

MAIN, OTHER = Style("vermilion"), Style("blue")
# Beside the main one. All are in the table.
MOST_CHARTS = 6


def metric_figures(run: RunData) -> list[Figure]:
    """The main metric, and the others beside each other; none if nothing was logged."""
    names = run.history.metric_names()
    if not names:
        return []
    main = run.history.main_metric()
    others = [name for name in names if name != main and len(known(run, name)) > 0]
    rows = [
        [f"{record.labeled:,}", *(cell(record.metrics.get(name)) for name in [main, *others])] for record in run.fits
    ]
    table = Table(caption="The last value of every metric of each fit", head=["labels", main, *others], rows=rows)
    figures = [
        Figure(
            title=f"{main} against labels",
            caption=finding(run, main),
            charts=[metric_chart(run, main, MAIN, 230)] if known(run, main) else [],
            table=table,
        )
    ]
    if others:
        left_out = f" Not drawn: {', '.join(others[MOST_CHARTS:])}." if others[MOST_CHARTS:] else ""
        figures.append(
            Figure(
                title="Other metrics",
                caption=f"The last value of each fit.{left_out}",
                charts=[metric_chart(run, name, OTHER, 170) for name in others[:MOST_CHARTS]],
                columns=2,
            )
        )
    return figures


def known(run: RunData, name: str) -> list[tuple[int, float]]:
    """Labels and value of each fit that has one."""
    return [(record.labeled, value) for record in run.fits if (value := record.metrics.get(name)) is not None]


def finding(run: RunData, name: str) -> str:
    points = known(run, name)
    if not points:
        return f"{name} has no value yet."
    (first, start), (last, end) = points[0], points[-1]
    if first == last:
        return f"{name} is {cell(end)} with {count(last)}."
    best_labels, best = max(points, key=lambda point: point[1])
    top = f" The highest, {cell(best)}, was with {count(best_labels)}." if best > end else ""
    return f"{name} goes from {cell(start)} with {count(first)} to {cell(end)} with {count(last)}.{top}"


def metric_chart(run: RunData, name: str, style: Style, height: int) -> Chart:
    points = known(run, name)
    labels, values = [list(column) for column in zip(*points, strict=True)]
    low, high = min(values), max(values)
    margin = (high - low) * 0.12 or abs(high) * 0.05 or 0.05
    return Chart(
        title=name,
        description=f"{name} against labels. {finding(run, name)}",
        x=label_axis([int(count) for count in labels], "labels"),
        y=number_axis(low - margin, high + margin, name, ticks(low - margin, high + margin, 5)),
        marks=[Line(x=labels, y=values, style=style, series=0, marker_step=marker_step(labels))],
        height=height,
    )


def marker_step(values: Sequence[object]) -> int:
    return max(1, round(len(values) / 30))


def cell(value: Number | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def count(labels: int) -> str:
    return f"{labels:,} label{'s' if labels != 1 else ''}"
