"""The few shapes our figures are made of. Colours, type and line widths are the page's, in page.css."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightning_diffal.studies.report.look import Look
from lightning_diffal.studies.report.markup import Markup, Number, element, joined, number

# Corners of each marker around zero, one unit being its radius; open lines for those that are strokes.
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


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Where data lie on the paper: the plot's edges in units of the SVG, and the ranges of both axes."""

    left: Number
    right: Number
    top: Number
    bottom: Number
    across: tuple[Number, Number]
    up: tuple[Number, Number]

    def x(self, value: Number) -> Number:
        low, high = self.across
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def y(self, value: Number) -> Number:
        low, high = self.up
        return self.bottom - (value - low) / ((high - low) or 1) * (self.bottom - self.top)


def drawing(width: Number, height: Number, name: str, *children: str, class_: str = "chart") -> Markup:
    """An SVG that says what it shows."""
    box = f"0 0 {number(width)} {number(height)}"
    return element("svg", *children, viewBox=box, role="img", aria_label=name, class_=class_)


def text(x: Number, y: Number, words: str, anchor: str = "middle", **attributes: str) -> Markup:
    return element("text", words, x=x, y=y, text_anchor=anchor, **attributes)


def line(x1: Number, y1: Number, x2: Number, y2: Number, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path_through(points: Sequence[tuple[Number, Number]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def markers(points: Sequence[tuple[Number, Number]], look: Look, radius: Number) -> Markup:
    """All markers of a line as one shape."""
    if look.marker in STROKES:
        strokes = [
            [(x + a * radius, y + b * radius) for a, b in stroke] for x, y in points for stroke in STROKES[look.marker]
        ]
        return element("path", d="".join(map(path_through, strokes)), class_="stroke")
    if look.marker == "circle":
        arc = f"a{number(radius)} {number(radius)} 0 1 0 "
        rings = (
            f"M{number(x - radius)} {number(y)}{arc}{number(2 * radius)} 0{arc}{number(-2 * radius)} 0z"
            for x, y in points
        )
        return element("path", d="".join(rings), class_="mark")
    corners = [[(x + a * radius, y + b * radius) for a, b in MARKERS[look.marker]] for x, y in points]
    return element("path", d="".join(path_through(shape) + "z" for shape in corners), class_="mark")


def styled_line(points: Sequence[tuple[Number, Number]], look: Look) -> Markup:
    dash = " ".join(map(number, look.dash)) or None
    return element("path", d=path_through(points), class_="line", stroke_dasharray=dash)


def swatch(look: Look) -> Markup:
    """The line of a selector, for keys beside its name."""
    parts = joined(styled_line([(1, 7), (33, 7)], look), markers([(17, 7)], look, 4))
    return element("svg", parts, viewBox="0 0 34 14", class_=f"swatch {hue_class(look)}", aria_hidden="true")


def hue_class(look: Look) -> str:
    return f"hue-{look.hue}{' wide' if look.wide else ''}"


def ticks(low: Number, high: Number, most: int) -> list[Number]:
    """Round numbers within the range: steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def axes(frame: Frame, across: str, up: str, *, x_ticks: Sequence[Number], y_ticks: Sequence[Number]) -> Markup:
    """Light lines behind the data, numbers below and left, a title for each axis."""
    parts = []
    for value in y_ticks:
        parts.append(line(frame.left, frame.y(value), frame.right, frame.y(value), "grid"))
        parts.append(text(frame.left - 6, frame.y(value), tick_label(value), "end", dominant_baseline="central"))
    for value in x_ticks:
        parts.append(text(frame.x(value), frame.bottom, tick_label(value), dy="1.4em"))
    parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    parts.append(text((frame.left + frame.right) / 2, frame.bottom, across, class_="title", dy="2.8em"))
    parts.append(text(0, frame.top, up, "start", class_="title", dy="-0.9em"))
    return joined(*parts)


def tick_label(value: Number) -> str:
    return f"{round(value, 10):,.10g}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
