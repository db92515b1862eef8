"""What the queries were: exploring or refining, and how long they took."""

from collections.abc import Sequence

from lightning_diffal.report.charts import Axis, Bars, Chart, Figure, Number, Table, Tick, number_axis, ticks
from lightning_diffal.report.run.metric_figures import cell
from lightning_diffal.report.run.run_data import RunData
from lightning_diffal.report.timings import STAGES, stages_of, timing_chart

# Rows of a chart; all rounds are in the table.
MOST_ROWS = 30


def phases_figure(run: RunData) -> Figure | None:
    """How many points of each query no label had reached; None for selectors without a graph."""
    counts = {
        number: (reached.count(False), reached.count(True))
        for number, points in run.asked.items()
        if (reached := [one.reached for one in points if one.reached is not None])
    }
    if not counts:
        return None
    explored, refined = (sum(pair[side] for pair in counts.values()) for side in (0, 1))
    finding = (
        f"{explored:,} of {explored + refined:,} points were asked to explore, where no label had come, and "
        f"{refined:,} to refine, where labels of several classes meet or are far."
    )
    high = max(map(sum, counts.values()))
    lower = [(number - 0.4, 0, number + 0.4, pair[0]) for number, pair in counts.items()]
    upper = [(number - 0.4, pair[0], number + 0.4, sum(pair)) for number, pair in counts.items()]
    chart = Chart(
        title="Explored and refined",
        description=finding,
        x=round_axis(list(counts)),
        y=number_axis(0, high * 1.08, "points of the query", ticks(0, high, 4)),
        marks=[
            Bars(boxes=lower, fill="exploring", name="exploring"),
            Bars(boxes=upper, fill="refining", name="refining"),
        ],
        height=180,
    )
    rows = [[str(number), *map(str, pair)] for number, pair in counts.items()]
    return Figure(
        title="Explored and refined",
        caption=finding,
        charts=[chart],
        table=Table(caption="Points of each query", head=["round", "explored", "refined"], rows=rows),
    )


def seconds_figure(run: RunData) -> Figure | None:
    """Seconds of each stage, a bar for each round."""
    taken = {record.round: stages_of(record.seconds) for record in run.fits if record.seconds}
    if not taken:
        return None
    seconds = {f"round {number}": {stage: found.get(stage, 0.0) for stage in STAGES} for number, found in taken.items()}
    totals = {stage: sum(row[stage] for row in seconds.values()) for stage in STAGES}
    everything = sum(totals.values())
    rest = everything - totals["fit"]
    finding = f"{everything:.3g} s in all: {totals['fit']:.3g} s of fits, {rest:.3g} s of embedding, graph and query."
    shown = dict(list(seconds.items())[-MOST_ROWS:])
    note = f" The last {MOST_ROWS} rounds are drawn." if len(seconds) > MOST_ROWS else ""
    return Figure(
        title="Seconds per round",
        caption=f"{finding} Query is everything the selector computes except the graph.{note}",
        charts=[
            timing_chart(shown, STAGES, "whole round", "seconds", finding),
            timing_chart(shown, STAGES[1:], "without the fit", "seconds without the fit", finding),
        ],
        table=Table(
            caption="Seconds of each stage",
            head=["round", *STAGES],
            rows=[[name, *(cell(value) if value else "–" for value in row.values())] for name, row in seconds.items()],
        ),
        columns=2,
    )


def round_axis(numbers: Sequence[int]) -> Axis:
    first, last = min(numbers), max(numbers)
    values: list[Number] = [value for value in ticks(first, last, 8) if float(value).is_integer()] or [first]
    shown = [Tick(value=value, label=str(int(value))) for value in values]
    return Axis(low=first - 0.6, high=last + 0.6, label="round", ticks=shown)
