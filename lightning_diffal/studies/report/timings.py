"""Seconds of each stage of a round."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from lightning_diffal.studies.report.charts import Bars, Chart, Figure, Table, Text, number_axis, row_chart, ticks
from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series

STAGES = ("fit", "embedding", "graph", "query")
Seconds = Mapping[str, Mapping[str, float]]
"""Of each stage, by selector."""


def timing_figure(section: Section) -> Figure:
    """The whole round, and the round without the fit."""
    seconds = {one.name: mean_seconds(one) for one in section.series}
    totals = {name: sum(taken.values()) for name, taken in seconds.items()}
    queries = {name: sum(taken[stage] for stage in STAGES[1:]) for name, taken in seconds.items()}
    slow = max(queries, key=lambda name: queries[name])
    finding = (
        f"A round takes {min(totals.values()):.3g} to {max(totals.values()):.3g} s; the slowest query is {slow}'s, "
        f"{queries[slow]:.3g} s of {totals[slow]:.3g} s."
    )
    rows = [
        [name, *(f"{value:.3f}" if value else "–" for value in taken.values()), f"{totals[name]:.3f}"]
        for name, taken in seconds.items()
    ]
    return Figure(
        title="Seconds per round",
        caption=f"{finding} Means over seeds and the rounds that had the stage; query is everything the selector "
        "computes except the graph.",
        charts=[
            timing_chart(seconds, STAGES, f"{section.title}: whole round", "seconds per round", finding),
            timing_chart(seconds, STAGES[1:], "without the fit", "seconds per round without the fit", finding),
        ],
        table=Table(caption="Mean seconds per round, by stage", head=["selector", *STAGES, "all"], rows=rows),
        columns=2,
    )


def mean_seconds(series: Series) -> dict[str, float]:
    """Mean seconds of each stage: over all seeds, and over the rounds that had the stage."""
    steps = [stages_of(step.seconds) for run in series.runs.values() for step in run.rounds]
    return {stage: fmean([step[stage] for step in steps if stage in step] or [0.0]) for stage in STAGES}


def stages_of(seconds: Mapping[str, float]) -> dict[str, float]:
    """Stages between graph and query, such as scores, clusters or distances, count as the query."""
    found = {stage: taken for stage, taken in seconds.items() if stage in STAGES[:-1]}
    rest = [taken for stage, taken in seconds.items() if stage not in found]
    return found | ({STAGES[-1]: sum(rest)} if rest else {})


def timing_chart(seconds: Seconds, stages: Sequence[str], title: str, label: str, finding: str) -> Chart:
    """A bar for each selector, its stages one after the other."""
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
