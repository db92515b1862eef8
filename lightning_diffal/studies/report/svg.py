"""Charts as SVG for the page. Type and line widths are set in page.css."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from lightning_diffal.studies.report.charts import Axis, Bars, Chart, Line, Mark, Number, Points, Text
from lightning_diffal.studies.report.style import Style

# Corners of each marker around zero, in units of its radius; open lines for those that are strokes.
MARKERS = {
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "diamond": [(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)],
    "up": [(0.0, -1.1), (1.1, 0.85), (-1.1, 0.85)],
    "down": [(0.0, 1.1), (1.1, -0.85), (-1.1, -0.85)],
}
STROKES = {
    "cross": [((-0.9, -0.9), (0.9, 0.9)), ((-0.9, 0.9), (0.9, -0.9))],
    "plus": [((-1.1, 0.0), (1.1, 0.0)), ((0.0, -1.1), (0.0, 1.1))],
}
BAR_MARGIN = 5
"""Above and below the bars of a row."""


def element(name: str, /, *children: str, **attributes: str | Number | None) -> Markup:
    """<name attributes>children</name>. `class_` is class, `data_fit` data-fit; None is left out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value if isinstance(value, str) else number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>{Markup().join(children)}</{name}>")


def number(value: Number) -> str:
    """A coordinate, short."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The edges of the plot in units of the SVG, and the functions from data to them."""

    left: Number
    right: Number
    top: Number
    bottom: Number
    x: Callable[[Number], Number]
    y: Callable[[Number], Number]


def frame_of(chart: Chart) -> Frame:
    left, right, top, bottom = 0.0, chart.width, 0.0, chart.height
    if chart.has_axes:
        left = 145.0 if chart.rows else 56.0
        right -= 52 if any(isinstance(mark, Text) for mark in chart.marks) else 17
        top, bottom = (28.0, bottom - 26) if chart.rows else (26.0, bottom - 40)
    return Frame(
        left=left, right=right, top=top, bottom=bottom, x=scale(chart.x, left, right), y=scale(chart.y, bottom, top)
    )


def scale(axis: Axis, start: Number, end: Number) -> Callable[[Number], Number]:
    return lambda value: start + (value - axis.low) / ((axis.high - axis.low) or 1) * (end - start)


def draw(chart: Chart) -> Markup:
    frame = frame_of(chart)
    lines = [mark for mark in chart.marks if isinstance(mark, Line) and mark.low and mark.high]
    bands = [band(frame, mark) for mark in lines]
    marks = [drawn(frame, mark, rows=chart.rows) for mark in chart.marks]
    return element(
        "svg",
        axes(chart, frame) if chart.has_axes else "",
        *bands,
        *marks,
        "" if chart.has_axes else rectangle(frame.left, frame.top, frame.right, frame.bottom, "edge"),
        viewBox=f"0 0 {number(chart.width)} {number(chart.height)}",
        role="img",
        aria_label=chart.description,
        class_="chart" if chart.has_axes else "board",
    )


def axes(chart: Chart, frame: Frame) -> Markup:
    """Light lines behind the data, numbers below and left, a title for each axis."""
    parts = []
    for tick in chart.y.ticks:
        y = frame.y(tick.value)
        if not chart.rows:
            parts.append(straight(frame.left, y, frame.right, y, "grid"))
        name = text(frame.left - 7, y, tick.label, "end", dominant_baseline="central")
        parts.append(name if tick.series is None else element("g", name, class_=f"series-{tick.series}"))
    for tick in chart.x.ticks:
        x = frame.x(tick.value)
        if chart.rows:
            parts.append(straight(x, frame.top, x, frame.bottom, "grid" if tick.value else "axis"))
        parts.append(text(x, frame.bottom, tick.label, dy="1.4em"))
    if not chart.rows:
        parts.append(straight(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
        parts.append(text((frame.left + frame.right) / 2, frame.bottom, chart.x.label, class_="title", dy="2.8em"))
    above = chart.x.label if chart.rows else chart.y.label
    return Markup().join([*parts, text(0, frame.top, above, "start", class_="title", dy="-0.9em")])


def drawn(frame: Frame, mark: Mark, *, rows: bool) -> Markup:
    if isinstance(mark, Text):
        return text(frame.x(mark.x) + 6, frame.y(mark.y), mark.words, "start", dominant_baseline="central")
    if isinstance(mark, Bars):
        margin = BAR_MARGIN if rows else 0
        corners = [
            (frame.x(left), frame.y(top) + margin, frame.x(right), frame.y(bottom) - margin)
            for left, bottom, right, top in mark.boxes
        ]
        return Markup().join(rectangle(*box, f"bar fill-{mark.fill}") for box in corners)
    points = [(frame.x(x), frame.y(y)) for x, y in zip(mark.x, mark.y, strict=True)]
    if isinstance(mark, Points):
        kind = "hollow " if mark.hollow else ""
        series = "" if mark.series is None else f" series-{mark.series}"
        body = markers(points, mark.style, mark.size)
        return element("g", body, class_=f"{kind}{hue_class(mark.style)}{series}", data_fit=mark.fit)
    marked = points[mark.first_marker :: mark.marker_step] if mark.marker_step else []
    parts = [styled_line(points, mark.style)]
    if marked:
        parts.append(markers(marked, mark.style, 2.9 if mark.style.wide else 2.4))
    return element("g", *parts, class_=f"{hue_class(mark.style)} series-{mark.series}")


def band(frame: Frame, mark: Line) -> Markup:
    there = [(frame.x(x), frame.y(y)) for x, y in zip(mark.x, mark.high or (), strict=True)]
    back = [(frame.x(x), frame.y(y)) for x, y in zip(mark.x, mark.low or (), strict=True)]
    shape = path_through([*there, *reversed(back)]) + "z"
    return element("path", d=shape, class_=f"band {hue_class(mark.style)} series-{mark.series}")


def text(x: Number, y: Number, words: str, anchor: str = "middle", **attributes: str) -> Markup:
    return element("text", words, x=x, y=y, text_anchor=anchor, **attributes)


def straight(x1: Number, y1: Number, x2: Number, y2: Number, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rectangle(left: Number, top: Number, right: Number, bottom: Number, class_: str) -> Markup:
    return element("rect", x=left, y=top, width=right - left, height=bottom - top, class_=class_)


def path_through(points: Sequence[tuple[Number, Number]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def markers(points: Sequence[tuple[Number, Number]], style: Style, radius: Number) -> Markup:
    """All markers as one path."""
    if style.marker in STROKES:
        strokes = [
            [(x + a * radius, y + b * radius) for a, b in stroke] for x, y in points for stroke in STROKES[style.marker]
        ]
        return element("path", d="".join(map(path_through, strokes)), class_="stroke")
    if style.marker == "circle":
        arc = f"a{number(radius)} {number(radius)} 0 1 0 "
        rings = (
            f"M{number(x - radius)} {number(y)}{arc}{number(2 * radius)} 0{arc}{number(-2 * radius)} 0z"
            for x, y in points
        )
        return element("path", d="".join(rings), class_="mark")
    corners = [[(x + a * radius, y + b * radius) for a, b in MARKERS[style.marker]] for x, y in points]
    return element("path", d="".join(path_through(shape) + "z" for shape in corners), class_="mark")


def styled_line(points: Sequence[tuple[Number, Number]], style: Style) -> Markup:
    dash = " ".join(map(number, style.dash)) or None
    return element("path", d=path_through(points), class_="line", stroke_dasharray=dash)


def swatch(style: Style) -> Markup:
    """The line of a selector, for a legend."""
    parts = [styled_line([(1, 7), (33, 7)], style), markers([(17, 7)], style, 4)]
    return element("svg", *parts, viewBox="0 0 34 14", class_=f"swatch {hue_class(style)}", aria_hidden="true")


def dot(style: Style, *, hollow: bool) -> Markup:
    """A marker, for a legend."""
    mark = element("g", markers([(7, 7)], style, 4.5), class_=f"{'hollow ' if hollow else ''}{hue_class(style)}")
    return element("svg", mark, viewBox="0 0 14 14", class_="dot", aria_hidden="true")


def hue_class(style: Style) -> str:
    return f"hue-{style.hue}{' wide' if style.wide else ''}"
