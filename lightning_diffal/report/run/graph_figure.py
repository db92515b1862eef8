"""The health of the graph: what it reaches, and how right it is."""

from lightning_diffal.pool.record import Record
from lightning_diffal.report.charts import Chart, Figure, Line, Table, number_axis, ticks
from lightning_diffal.report.run.metric_figures import OTHER, cell, marker_step
from lightning_diffal.report.run.query_figures import round_axis
from lightning_diffal.report.run.run_data import RunData


def graph_figure(run: RunData) -> Figure | None:
    """How much of the pool the labels reach, and how right the graph is about labels it has not seen, round by round.

    None for selectors without a graph.
    """
    unreached = {record.round: unreached_share(run, record) for record in run.fits if record.unreached is not None}
    left_out = {record.round: record.diffused["leave_one_out"] for record in run.fits if record.diffused}
    if not unreached and not left_out:
        return None
    findings = []
    if unreached:
        first, last = (
            next(one for one in run.fits if one.round == number) for number in (min(unreached), max(unreached))
        )
        findings.append(
            f"Before the first query {first.unreached:,} unlabeled points had no path from a label "
            f"({unreached[first.round]:.1%}), before the last {last.unreached:,} ({unreached[last.round]:.1%})."
        )
    if left_out:
        right = left_out[max(left_out)]
        findings.append(f"The graph, given all labels but one, is right about that one in {right:.1%} of the cases.")
    finding = " ".join(findings)
    lines = {"unreached share of the unlabeled": unreached, "leave-one-out accuracy": left_out}
    rows = [
        [
            str(one.round),
            f"{one.labeled:,}",
            cell(one.unreached),
            percent(unreached.get(one.round)),
            percent(left_out.get(one.round)),
            cell(one.diffused.get("points")),
        ]
        for one in run.fits
        if one.round in unreached | left_out
    ]
    return Figure(
        title="Health of the graph",
        caption=finding,
        charts=[graph_chart(name, shares, finding) for name, shares in lines.items() if shares],
        table=Table(
            caption="Unlabeled points that no label had reached, and points trained on with diffused labels",
            head=["round", "labels", "unreached", "share", "leave-one-out", "diffused"],
            rows=rows,
        ),
    )


def unreached_share(run: RunData, record: Record) -> float:
    unlabeled = (run.pool_size or 0) - record.labeled
    return (record.unreached or 0) / unlabeled if unlabeled > 0 else 0.0


def graph_chart(name: str, shares: dict[int, float], finding: str) -> Chart:
    high = (max(shares.values()) or 0.01) * 1.08
    line = Line(x=list(shares), y=list(shares.values()), style=OTHER, series=0, marker_step=marker_step(list(shares)))
    return Chart(
        title=name,
        description=f"{name}. {finding}",
        x=round_axis(list(shares)),
        y=number_axis(0.0, high, name, ticks(0.0, high, 4)),
        marks=[line],
        height=180,
    )


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
