"""What a figure shows, independent of how it is drawn: svg.py draws charts for the page, png.py as a file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightning_diffal.report.style import Style

Number = int | float
"""Spelled out because beartype, which checks types under pytest, does not take an int for a float."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line through points, a marker on some of them, and a band around it."""

    x: Sequence[Number]
    y: Sequence[Number]
    style: Style
    series: int
    """Index of the selector, which readers of the page can hide."""
    name: str | None = None
    """For the legend; lines without a name are not in it."""
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    first_marker: int = 0
    marker_step: int | None = None
    """A marker on every so many points; None for no markers."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """Markers at points."""

    x: Sequence[Number]
    y: Sequence[Number]
    style: Style
    size: Number
    name: str | None = None
    series: int | None = None
    fit: int | None = None
    """The first fit trained on these points; the page can replay the fits."""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Rectangles (left, bottom, right, top) of one fill."""

    boxes: Sequence[tuple[Number, Number, Number, Number]]
    fill: str
    """A key of `style.FILLS`."""
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Text:
    """A number at the right of a bar."""

    x: Number
    y: Number
    words: str


Mark = Line | Points | Bars | Text


@dataclass(frozen=True, kw_only=True)
class Tick:
    value: Number
    label: str
    series: int | None = None
    """Of a row's name: the selector it belongs to."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    low: Number
    high: Number
    ticks: Sequence[Tick] = ()
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    """Of the PNG; on the page the figure has one."""
    description: str
    """For screen readers."""
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    width: Number = 400.0
    height: Number
    rows: bool = False
    """Whether the y axis lists selectors, the first at the top, and values go across."""
    emphasized: bool = False

    @property
    def has_axes(self) -> bool:
        return bool(self.x.ticks)


@dataclass(frozen=True, kw_only=True)
class Table:
    """The first cell of a row is its header."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    title: str
    caption: str
    charts: Sequence[Chart] = ()
    table: Table | None = None
    """All numbers of the figure."""
    columns: int = 1
    """Of charts, in the PNG."""


def ticks(low: Number, high: Number, most: int) -> list[Number]:
    """Round numbers within the range: steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def number_axis(low: Number, high: Number, label: str, values: Sequence[Number]) -> Axis:
    return Axis(low=low, high=high, label=label, ticks=[Tick(value=value, label=tick_label(value)) for value in values])


def label_axis(counts: Sequence[int], label: str, *, margin: Number = 0) -> Axis:
    """An axis of label counts: round numbers, and the first and last where they do not crowd."""
    first, last = float(counts[0]), float(counts[-1])
    room = (last - first) * 0.09
    inner = [value for value in ticks(first, last, 6) if first + room < value < last - room]
    margin = margin if last > first else max(margin, 1)
    return number_axis(first - margin, last + margin, label, [first, *inner, *([last] if last > first else [])])


def row_chart(
    title: str, description: str, x: Axis, marks: Sequence[Mark], names: Sequence[str], series: Sequence[int | None]
) -> Chart:
    """A row of height 1 for each name, downwards from 0."""
    rows = [
        Tick(value=row + 0.5, label=name if len(name) <= 20 else name[:19] + "…", series=one)
        for row, (name, one) in enumerate(zip(names, series, strict=True))
    ]
    y = Axis(low=len(names), high=0, ticks=rows)
    height = 54.0 + 26.0 * len(names)
    return Chart(title=title, description=description, x=x, y=y, marks=marks, height=height, rows=True)


def tick_label(value: Number) -> str:
    return f"{round(value, 10):,.10g}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
