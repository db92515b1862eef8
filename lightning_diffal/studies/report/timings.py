"""Seconds of each stage of a round."""

from statistics import fmean

from lightning_diffal.report.charts import Figure, Table
from lightning_diffal.report.timings import STAGES, stages_of, timing_chart
from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series


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
