"""Seconds of each stage of a round, as bars."""

from collections.abc import Mapping, Sequence

from lightning_diffal.report.charts import Bars, Chart, Text, number_axis, row_chart, ticks

STAGES = ("fit", "embedding", "graph", "query")
Seconds = Mapping[str, Mapping[str, float]]
"""Of each stage, by selector or round."""


def stages_of(seconds: Mapping[str, float]) -> dict[str, float]:
    """Stages between graph and query, such as scores, clusters or distances, count as the query."""
    found = {stage: taken for stage, taken in seconds.items() if stage in STAGES[:-1]}
    rest = [taken for stage, taken in seconds.items() if stage not in found]
    return found | ({STAGES[-1]: sum(rest)} if rest else {})


def timing_chart(seconds: Seconds, stages: Sequence[str], title: str, label: str, finding: str) -> Chart:
    """A bar for each selector or round, its stages one after the other."""
    rows = list(seconds.values())
    totals = [sum(row[stage] for stage in stages) for row in rows]
    marks: list[Bars | Text] = []
    for index, stage in enumerate(stages):
        starts = [sum(row[before] for before in stages[:index]) for row in rows]
        boxes = [(start, y + 1, start + row[stage], y) for y, (start, row) in enumerate(zip(starts, rows, strict=True))]
        marks.append(Bars(boxes=boxes, fill=stage, name=stage))
    marks += [Text(x=total, y=y + 0.5, words=f"{total:.3g}") for y, total in enumerate(totals)]
    high = max(totals) or 1.0
    x = number_axis(0.0, high, label, ticks(0.0, high, 4))
    return row_chart(title, f"{label}. {finding}", x, marks, list(seconds), [None] * len(rows))
