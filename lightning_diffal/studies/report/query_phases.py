"""How much of each query explores and how much refines, for selectors with a graph."""

from statistics import fmean

from lightning_diffal.report.charts import Bars, Chart, Figure, Table, label_axis, number_axis
from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series


def exploring_shares(series: Series) -> dict[int, float]:
    """The exploring share of the query after each fit, mean over seeds, by label count; empty without a graph."""
    shares: dict[int, list[float]] = {}
    for run in series.runs.values():
        for step in run.rounds:
            known = [reached for reached in step.reached if reached is not None]
            if known:
                shares.setdefault(step.labels, []).append(known.count(False) / len(known))
    return {labels: fmean(shares[labels]) for labels in sorted(shares)}


def phases_figure(section: Section) -> Figure | None:
    phases = {one.name: shares for one in section.series if (shares := exploring_shares(one))}
    if not phases:
        return None
    rows = [
        [f"{count:,}", *(share_cell(shares.get(count)) for shares in phases.values())]
        for count in sorted({count for shares in phases.values() for count in shares})
    ]
    return Figure(
        title="Exploring and refining",
        caption="Share of each query, mean over seeds, of selectors with a graph.",
        charts=[phase_chart(section, name, shares) for name, shares in phases.items()],
        table=Table(
            caption="Exploring / refining share of each query, mean over seeds", head=["labels", *phases], rows=rows
        ),
    )


def share_cell(exploring: float | None) -> str:
    return "–" if exploring is None else f"{exploring:.0%} / {1 - exploring:.0%}"


def phase_chart(section: Section, name: str, shares: dict[int, float]) -> Chart:
    """A bar for each query: exploring from below, refining from above."""
    step = section.beyond - section.labels[-1]
    half = 0.42 * step
    exploring = [(count - half, 0.0, count + half, share) for count, share in shares.items()]
    refining = [(count - half, share, count + half, 1.0) for count, share in shares.items()]
    return Chart(
        title=f"{section.title}: {name}",
        description=phases_finding(name, shares),
        x=label_axis(list(shares), "labels at the query", margin=step / 2),
        y=number_axis(0.0, 1.0, "share of the query", [0, 0.5, 1]),
        marks=[
            Bars(boxes=exploring, fill="exploring", name="exploring"),
            Bars(boxes=refining, fill="refining", name="refining"),
        ],
        height=180,
    )


def phases_finding(name: str, shares: dict[int, float]) -> str:
    first, last = shares[min(shares)], shares[max(shares)]
    half = next((count for count, share in shares.items() if share < 0.5), None)
    turn = f"; from {half} labels on it mostly refines" if half is not None and first >= 0.5 else ""
    return f"With {name}, {first:.0%} of the first query explores, and {last:.0%} of the last{turn}."
