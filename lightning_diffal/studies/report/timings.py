"""Seconds of each stage of a round."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from lightning_diffal.studies.report.charts import Bars, Chart, Text, number_axis, row_axis, row_height, ticks
from lightning_diffal.studies.report.sections import Section

STAGES = ("fit", "embedding", "graph", "query")


def seconds_of(section: Section) -> dict[str, dict[str, float]]:
    """Mean seconds of each stage, by selector: over all seeds, and over the rounds that had the stage."""
    found = {}
    for one in section.series:
        steps = [stages_of(step.seconds) for seed in one.seeds for step in one.runs[seed].rounds]
        values = {stage: [step[stage] for step in steps if stage in step] for stage in STAGES}
        found[one.name] = {stage: fmean(seconds) if seconds else 0.0 for stage, seconds in values.items()}
    return found


def stages_of(seconds: Mapping[str, float]) -> dict[str, float]:
    """Stages between graph and query, such as scores, clusters or distances, count as the query."""
    found = {stage: taken for stage, taken in seconds.items() if stage in STAGES[:-1]}
    rest = [taken for stage, taken in seconds.items() if stage not in found]
    return found | ({STAGES[-1]: sum(rest)} if rest else {})


def timing_charts(section: Section) -> list[Chart]:
    """The whole round, and the round without the fit."""
    return [
        timing_chart(section, STAGES, f"{section.title}: whole round", "seconds per round"),
        timing_chart(section, STAGES[1:], "without the fit", "seconds per round without the fit"),
    ]


def timing_chart(section: Section, stages: Sequence[str], title: str, label: str) -> Chart:
    """A bar for each selector, its stages one after the other."""
    rows = list(seconds_of(section).values())
    totals = [sum(row[stage] for stage in stages) for row in rows]
    marks: list[Bars | Text] = []
    for index, stage in enumerate(stages):
        starts = [sum(row[before] for before in stages[:index]) for row in rows]
        boxes = [(start, y + 1, start + row[stage], y) for y, (start, row) in enumerate(zip(starts, rows, strict=True))]
        marks.append(Bars(boxes=boxes, fill=stage, name=stage))
    marks += [Text(x=total, y=y + 0.5, words=f"{total:.3g}") for y, total in enumerate(totals)]
    high = max(totals) or 1.0
    return Chart(
        title=title,
        x=number_axis(0.0, high, label, ticks(0.0, high, 4)),
        y=row_axis([one.name for one in section.series], [None] * len(rows)),
        marks=marks,
        height=row_height(len(rows)),
        rows=True,
    )
