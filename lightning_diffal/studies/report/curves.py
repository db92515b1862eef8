"""Accuracy and its variance against labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

from lightning_diffal.studies.report.charts import Chart, Line, label_axis, number_axis, ticks
from lightning_diffal.studies.report.sections import Section, Series


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A value of a series for each label count, and the half width of its band."""

    series: Series
    values: list[float]
    spread: list[float] | None = None

    @property
    def low(self) -> list[float]:
        spread = self.spread or [0.0] * len(self.values)
        return [value - half for value, half in zip(self.values, spread, strict=True)]

    @property
    def high(self) -> list[float]:
        spread = self.spread or [0.0] * len(self.values)
        return [value + half for value, half in zip(self.values, spread, strict=True)]


def accuracy_curves(section: Section) -> list[Curve]:
    """Mean accuracy in each round, with one standard deviation over the seeds (n - 1) where there are several."""
    rounds = range(len(section.labels))
    return [
        Curve(
            series=one,
            values=[fmean(one.at(index)) for index in rounds],
            spread=[stdev(one.at(index)) for index in rounds] if len(one.runs) > 1 else None,
        )
        for one in section.series
    ]


def variance_curves(section: Section) -> list[Curve]:
    """Variance of accuracy over the seeds (n - 1) in each round, of series with several seeds."""
    rounds = range(len(section.labels))
    return [
        Curve(series=one, values=[variance(one.at(index)) for index in rounds])
        for one in section.series
        if len(one.runs) > 1
    ]


def accuracy_charts(section: Section) -> list[Chart]:
    curves = accuracy_curves(section)
    low = max(0.0, min(min(curve.low) for curve in curves))
    high = max(max(curve.high) for curve in curves)
    margin = (high - low) * 0.04 or 0.05
    return [curve_chart(section, curves, "accuracy", low - margin, high + margin)]


def variance_charts(section: Section) -> list[Chart]:
    """None without a series of several seeds."""
    curves = variance_curves(section)
    if not curves:
        return []
    high = max(max(curve.values) for curve in curves)
    return [curve_chart(section, curves, "variance over seeds", 0.0, high * 1.04 or 0.05)]


def curve_chart(section: Section, curves: Sequence[Curve], label: str, low: float, high: float) -> Chart:
    """All curves in one plot, the emphasized one on top."""
    order = {one.name: index for index, one in enumerate(section.series)}
    step = max(1, round(len(section.labels) / 9))
    back_to_front = sorted(curves, key=lambda curve: (curve.series.style.wide, -order[curve.series.name]))
    lines = [
        Line(
            x=section.labels,
            y=curve.values,
            style=curve.series.style,
            series=order[curve.series.name],
            name=curve.series.name,
            low=curve.low if curve.spread else None,
            high=curve.high if curve.spread else None,
            # Lines start their markers at different rounds, so that fewer cover each other.
            first_marker=order[curve.series.name] % step,
            marker_step=step,
        )
        for curve in back_to_front
    ]
    y = number_axis(low, high, label, ticks(low, high, 6))
    return Chart(title=section.title, x=label_axis(section.labels, "labels"), y=y, marks=lines, height=260)
