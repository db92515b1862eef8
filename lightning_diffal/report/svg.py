"""Coordinates and paths of charts as SVG; the markup is in charts.html, type and line widths are in page.css."""

from collections.abc import Sequence

from lightning_diffal.report.charts import Axis, Chart, Number, Text

Point = tuple[Number, Number]
# The strokes of each marker around zero, in units of its radius; those of one stroke are closed. Circles are arcs.
MARKERS = {
    "square": [[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]],
    "diamond": [[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]],
    "up": [[(0.0, -1.1), (1.1, 0.85), (-1.1, 0.85)]],
    "down": [[(0.0, 1.1), (1.1, -0.85), (-1.1, -0.85)]],
    "cross": [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]],
    "plus": [[(-1.1, 0.0), (1.1, 0.0)], [(0.0, -1.1), (0.0, 1.1)]],
}


class Frame:
    """The edges of the plot in units of the SVG, and data in these units."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.left, self.right, self.top, self.bottom = 0.0, chart.width, 0.0, chart.height
        if chart.has_axes:
            self.left = 145.0 if chart.rows else 56.0
            self.right -= 52 if any(isinstance(mark, Text) for mark in chart.marks) else 17
            self.top, self.bottom = (28.0, chart.height - 26) if chart.rows else (26.0, chart.height - 40)

    def x(self, value: Number) -> Number:
        return self.left + fraction(self.chart.x, value) * (self.right - self.left)

    def y(self, value: Number) -> Number:
        return self.bottom + fraction(self.chart.y, value) * (self.top - self.bottom)

    def points(self, x: Sequence[Number], y: Sequence[Number]) -> list[Point]:
        return list(zip(map(self.x, x), map(self.y, y), strict=True))


def fraction(axis: Axis, value: Number) -> Number:
    return (value - axis.low) / ((axis.high - axis.low) or 1)


def number(value: Number) -> str:
    """A coordinate, short."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def marker_path(points: Sequence[Point], marker: str, radius: Number) -> str:
    """All markers as one path."""
    if marker == "circle":
        arc = f"a{number(radius)} {number(radius)} 0 1 0 "
        return "".join(
            f"M{number(x - radius)} {number(y)}{arc}{number(2 * radius)} 0{arc}{number(-2 * radius)} 0z"
            for x, y in points
        )
    strokes = MARKERS[marker]
    end = "z" if len(strokes) == 1 else ""
    return "".join(
        path([(x + a * radius, y + b * radius) for a, b in stroke]) + end for x, y in points for stroke in strokes
    )
