"""Lines against labels: accuracy with its bands, and the variance of accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

from lightning_diffal.studies.report.markup import Markup, Number, element, joined
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.svg import (
    Frame,
    axes,
    drawing,
    hue_class,
    markers,
    path_through,
    styled_line,
    ticks,
)

WIDTH, HEIGHT = 400.0, 260.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What is drawn of a series: a value for each label count, and the band around it."""

    series: Series
    values: list[float]
    spread: list[float] | None

    @property
    def low(self) -> list[float]:
        return [
            value - apart for value, apart in zip(self.values, self.spread or [0.0] * len(self.values), strict=True)
        ]

    @property
    def high(self) -> list[float]:
        return [
            value + apart for value, apart in zip(self.values, self.spread or [0.0] * len(self.values), strict=True)
        ]


def accuracy_curves(section: Section) -> list[Curve]:
    """Mean accuracy in each round, and one standard deviation over the seeds (n - 1) where there are several."""
    places = range(len(section.labels))
    return [
        Curve(
            series=one,
            values=[fmean(one.at(place)) for place in places],
            spread=[stdev(one.at(place)) for place in places] if len(one.runs) > 1 else None,
        )
        for one in section.series
    ]


def variance_curves(section: Section) -> list[Curve]:
    """Variance of accuracy over the seeds (n - 1) in each round, of series with several seeds."""
    places = range(len(section.labels))
    return [
        Curve(series=one, values=[variance(one.at(place)) for place in places], spread=None)
        for one in section.series
        if len(one.runs) > 1
    ]


def curve_chart(section: Section, curves: Sequence[Curve], up: str, name: str, *, from_zero: bool) -> Markup:
    """All curves over each other, the emphasised one last and so on top."""
    lows, highs = [min(curve.low) for curve in curves], [max(curve.high) for curve in curves]
    low, high = (0.0 if from_zero else max(0.0, min(lows))), max(highs)
    pad = (high - low) * 0.04 or 0.05
    frame = Frame(
        left=56,
        right=WIDTH - 17,
        top=26,
        bottom=HEIGHT - 40,
        across=(section.labels[0], section.labels[-1])
        if len(section.labels) > 1
        else (section.labels[0] - 1, section.labels[0] + 1),
        up=(low if from_zero else low - pad, high + pad),
    )
    order = {one.name: place for place, one in enumerate(section.series)}
    behind_first = sorted(curves, key=lambda curve: (curve.series.look.wide, -order[curve.series.name]))
    bands = [
        drawn_band(frame, section.labels, curve, order[curve.series.name]) for curve in behind_first if curve.spread
    ]
    lines = [drawn_line(frame, section.labels, curve, order[curve.series.name]) for curve in behind_first]
    return drawing(
        WIDTH,
        HEIGHT,
        name,
        axes(frame, "labels", up, x_ticks=label_ticks(section.labels), y_ticks=ticks(*frame.up, 6)),
        *bands,
        *lines,
    )


def label_ticks(labels: Sequence[int]) -> list[Number]:
    """Round label counts, and the first and the last where they do not crowd."""
    first, last = float(labels[0]), float(labels[-1])
    room = (last - first) * 0.09
    inner = [value for value in ticks(first, last, 6) if first + room < value < last - room]
    return [first, *inner, *([last] if last > first else [])]


def drawn_band(frame: Frame, labels: Sequence[int], curve: Curve, place: int) -> Markup:
    there = [(frame.x(count), frame.y(value)) for count, value in zip(labels, curve.high, strict=True)]
    back = [(frame.x(count), frame.y(value)) for count, value in zip(labels, curve.low, strict=True)]
    shape = path_through([*there, *reversed(back)]) + "z"
    return element("path", d=shape, class_=f"band {hue_class(curve.series.look)} series-{place}")


def drawn_line(frame: Frame, labels: Sequence[int], curve: Curve, place: int) -> Markup:
    look = curve.series.look
    points = [(frame.x(count), frame.y(value)) for count, value in zip(labels, curve.values, strict=True)]
    every = max(1, round(len(points) / 9))
    # Markers of different lines start at different rounds, so that fewer of them cover each other.
    marked = points[place % every :: every]
    body = joined(styled_line(points, look), markers(marked, look, 2.9 if look.wide else 2.4))
    return element("g", body, class_=f"{hue_class(look)} series-{place}")
