"""Which classes were found, when, and how the labels are spread over them."""

from collections.abc import Sequence

from lightning_diffal.report.charts import (
    Bars,
    Chart,
    Figure,
    Line,
    Table,
    Text,
    label_axis,
    number_axis,
    row_chart,
    ticks,
)
from lightning_diffal.report.run.metric_figures import OTHER, count, marker_step
from lightning_diffal.report.run.run_data import RunData

# Rows of the chart; all classes are in the table.
MOST_ROWS = 25


def class_figure(run: RunData) -> Figure | None:
    """Labels of each class, and classes found against labels; None before the first label."""
    counts = run.counts
    if not counts.total():
        return None
    found_at = first_labels(run)
    steps = classes_by_labels(run)
    finding = class_finding(run, found_at)
    ranked = sorted(counts, key=lambda name: -counts[name])
    shown = [name for name in counts if name in set(ranked[:MOST_ROWS])]
    note = f" The {MOST_ROWS} classes with the most labels are drawn." if len(counts) > MOST_ROWS else ""
    return Figure(
        title="Classes found, and their balance",
        caption=f"{finding}{note}",
        charts=[balance_chart({name: counts[name] for name in shown}, finding), found_chart(steps, finding)],
        table=Table(
            caption="Labels of each class, and how many labels there were when it was found",
            head=["class", "labels", "found with"],
            rows=[[name, str(counts[name]), str(found_at.get(name, "–"))] for name in counts],
        ),
        columns=2,
    )


def first_labels(run: RunData) -> dict[str, int]:
    """How many labels there were once each class had its first."""
    found: dict[str, int] = {}
    labels = 0
    for points in run.asked.values():
        for one in points:
            if one.labeled:
                labels += 1
                found.setdefault(one.label, labels)
    return found


def classes_by_labels(run: RunData) -> list[tuple[int, int]]:
    """Labels and classes after each round."""
    steps, labels, classes = [], 0, set()
    for points in run.asked.values():
        named = [one.label for one in points if one.labeled]
        labels += len(named)
        classes.update(named)
        if named:
            steps.append((labels, len(classes)))
    return steps


def class_finding(run: RunData, found_at: dict[str, int]) -> str:
    counts = run.counts
    total = f" of {len(run.classes)}" if run.classes is not None else ""
    largest = max(counts, key=lambda name: counts[name])
    smallest = min(found_at, key=lambda name: counts[name])
    missing = [name for name in counts if name not in found_at]
    words = f"{len(found_at)}{total} classes found, the last with {count(max(found_at.values()))}."
    if len(found_at) > 1:
        words += f" Most labels: {largest}, {counts[largest]}; fewest: {smallest}, {counts[smallest]}."
    return words + (f" Not found: {', '.join(missing[:8])}{', …' if len(missing) > 8 else ''}." if missing else "")


def balance_chart(counts: dict[str, int], finding: str) -> Chart:
    high = max(counts.values())
    title = "Labels of each class"
    boxes = [(0, row + 1, value, row) for row, value in enumerate(counts.values())]
    marks: list[Bars | Text] = [Bars(boxes=boxes, fill="embedding")]
    marks += [Text(x=value, y=row + 0.5, words=f"{value:,}") for row, value in enumerate(counts.values())]
    x = number_axis(0, high, "labels of each class", ticks(0, high, 4))
    return row_chart(title, f"{title}. {finding}", x, marks, list(counts), [None] * len(counts))


def found_chart(steps: Sequence[tuple[int, int]], finding: str) -> Chart:
    labels, classes = [step[0] for step in steps], [step[1] for step in steps]
    high = max(classes) + 0.5
    whole = [value for value in ticks(0, high, 5) if float(value).is_integer()]
    return Chart(
        title="Classes found",
        description=f"Classes found against labels. {finding}",
        x=label_axis(labels, "labels"),
        y=number_axis(0, high, "classes found", whole),
        marks=[Line(x=labels, y=classes, style=OTHER, series=0, marker_step=marker_step(labels))],
        height=200,
    )
