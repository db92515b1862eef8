"""Accuracy and its variance against labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

from lightning_diffal.report.charts import Chart, Figure, Line, Table, label_axis, number_axis, ticks
from lightning_diffal.studies.report.captions import final_ranking, ordinal
from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series

BAND = "Lines are means over the seeds; bands are ± one standard deviation (n − 1), not confidence intervals."


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A value of a series for each label count, and the half width of its band."""

    series: Series
    values: list[float]
    spread: list[float] | None = None

    def edge(self, sign: int) -> list[float]:
        """The lower (-1) or upper (+1) edge of the band."""
        if self.spread is None:
            return self.values
        return [value + sign * half for value, half in zip(self.values, self.spread, strict=True)]


def accuracy_figure(section: Section) -> Figure:
    """Mean accuracy in each round, with one standard deviation over the seeds where there are several."""
    curves = [
        Curve(series=one, values=one.means, spread=[*map(stdev, one.by_round)] if len(one.runs) > 1 else None)
        for one in section.series
    ]
    low = max(0.0, min(min(curve.edge(-1)) for curve in curves))
    high = max(max(curve.edge(1)) for curve in curves)
    margin = (high - low) * 0.04 or 0.05
    finding = final_ranking(section)
    description = f"Accuracy against labels, {len(curves)} selectors. {finding}"
    banded = any(curve.spread for curve in curves)
    measured = "Accuracy, mean ± standard deviation over seeds" if banded else "Accuracy"
    return Figure(
        title="Accuracy against labels",
        caption=f"{finding} {BAND if banded else 'One seed, so there is no band.'}",
        charts=[curve_chart(section, curves, "accuracy", description, low - margin, high + margin)],
        table=curve_table(section, curves, measured, 3),
    )


def variance_figure(section: Section) -> Figure:
    """Variance of accuracy over the seeds in each round, of series with several seeds."""
    title = "Variance of accuracy against labels"
    curves = [Curve(series=one, values=[*map(variance, one.by_round)]) for one in section.series if len(one.runs) > 1]
    if not curves:
        return Figure(title=title, caption="One seed has no variance; run more seeds to see it.")
    finding = variance_finding(curves)
    left_out = ", ".join(one.name for one in section.series if len(one.runs) == 1)
    high = max(max(curve.values) for curve in curves) * 1.04 or 0.05
    return Figure(
        title=title,
        caption=f"{finding} Not shown, with only one seed: {left_out}." if left_out else finding,
        charts=[curve_chart(section, curves, "variance over seeds", f"{title}. {finding}", 0.0, high)],
        table=curve_table(section, curves, "Variance of accuracy over seeds (n − 1)", 6),
    )


def variance_finding(curves: Sequence[Curve]) -> str:
    """Which selector's accuracy varies least over seeds, on average over the rounds, and diffusion's rank."""
    ranked = sorted(curves, key=lambda curve: fmean(curve.values))
    names, means = [curve.series.name for curve in ranked], [fmean(curve.values) for curve in ranked]
    sentence = f"On average over the rounds {names[0]} varies least, {means[0]:.2g}"
    selectors = [curve.series.selector for curve in ranked]
    # Of several series of diffusion, the one that varies most.
    place = max((index for index, selector in enumerate(selectors) if selector == "diffusion"), default=0)
    if place > 0:
        return f"{sentence}; diffusion is {ordinal(place + 1)} of {len(ranked)} with {means[place]:.2g}."
    return f"{sentence}; {names[-1]} varies most, {means[-1]:.2g}." if len(ranked) > 1 else f"{sentence}."


def curve_chart(
    section: Section, curves: Sequence[Curve], label: str, description: str, low: float, high: float
) -> Chart:
    """All curves in one plot, the emphasized one on top."""
    order = {curve.series.name: section.series.index(curve.series) for curve in curves}
    step = max(1, round(len(section.labels) / 9))
    lines = [
        Line(
            x=section.labels,
            y=curve.values,
            style=curve.series.style,
            series=order[curve.series.name],
            name=curve.series.name,
            low=curve.edge(-1) if curve.spread else None,
            high=curve.edge(1) if curve.spread else None,
            # Lines start their markers at different rounds, so that fewer cover each other.
            first_marker=order[curve.series.name] % step,
            marker_step=step,
        )
        for curve in sorted(curves, key=lambda curve: (curve.series.style.wide, -order[curve.series.name]))
    ]
    return Chart(
        title=section.title,
        description=description,
        x=label_axis(section.labels, "labels"),
        y=number_axis(low, high, label, ticks(low, high, 6)),
        marks=lines,
        height=260,
    )


def curve_table(section: Section, curves: Sequence[Curve], caption: str, digits: int) -> Table:
    """A row for each label count, a column for each selector; the band after ±."""
    rows = []
    for index, count in enumerate(section.labels):
        cells = [
            f"{curve.values[index]:.{digits}f}" + (f" ± {curve.spread[index]:.{digits}f}" if curve.spread else "")
            for curve in curves
        ]
        rows.append([f"{count:,}", *cells])
    return Table(caption=caption, head=["labels", *(curve.series.name for curve in curves)], rows=rows)
