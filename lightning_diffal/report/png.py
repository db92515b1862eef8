"""Charts as PNG files, for READMEs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lightning_diffal.report.charts import Bars, Chart, Line, Mark, Points, Text
from lightning_diffal.report.style import FILLS, LIGHT

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v", "cross": "x", "plus": "+"}


def write_png(charts: Sequence[Chart], path: Path, columns: int = 1) -> None:
    """The charts in a grid with one legend. Nothing of pyplot is touched, so no window can open."""
    columns = min(columns, len(charts))
    rows = -(-len(charts) // columns)
    beside = any(isinstance(mark, Line) for mark in charts[0].marks)
    per_inch = 60 if columns == 1 else 95
    size = (columns * charts[0].width / per_inch + 1.75 * beside, rows * charts[0].height / per_inch + 0.5 * rows)
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, chart in zip(grid.flat, charts, strict=False):
        for mark in chart.marks:
            handle = draw(axes, mark, rows=chart.rows)
            if not isinstance(mark, Text) and mark.name:
                handles.setdefault(escaped(mark.name), (mark, handle))
        finish(axes, chart)
    for axes in grid.flat[len(charts) :]:
        axes.set_axis_off()
    for axes in grid[:, 1:].flat:
        axes.set_yticklabels([])
    entries = list(handles.items())
    if beside:  # in the order of the lines' right ends
        entries.sort(key=lambda entry: -entry[1][0].y[-1])
    figure.legend(
        [handle for _, (_, handle) in entries],
        [name for name, _ in entries],
        frameon=False,
        fontsize=9,
        handlelength=3.2 if beside else None,
        ncols=1 if beside else len(entries),
        loc="outside right center" if beside else "outside lower center",
    )
    # Without matplotlib's version and the date, the same results give the same bytes.
    figure.savefig(path, metadata={"Software": None})


def draw(axes: Any, mark: Mark, *, rows: bool) -> Any:
    """Draw a mark, and return what stands for it in the legend."""
    if isinstance(mark, Bars):
        margin, color = 0.19 if rows else 0.0, LIGHT[FILLS[mark.fill]]
        for left, bottom, right, top in mark.boxes:
            low, high = min(bottom, top) + margin, max(bottom, top) - margin
            axes.bar(left, high - low, right - left, low, align="edge", color=color, edgecolor="white", linewidth=0.4)
        return Patch(color=color)
    if isinstance(mark, Points):
        color, open_marker = LIGHT[mark.style.hue], mark.style.marker in ("plus", "cross")
        faces = {} if open_marker else {"facecolors": "none" if mark.style.hollow else color, "edgecolors": color}
        marker = MARKERS[mark.style.marker]
        colors = faces or {"color": color}
        return axes.scatter(mark.x, mark.y, s=16, marker=marker, linewidths=1, clip_on=False, **colors)
    if isinstance(mark, Line):
        color, wide = LIGHT[mark.style.hue], mark.style.wide
        if mark.low and mark.high:
            axes.fill_between(mark.x, mark.low, mark.high, color=color, alpha=0.2 if wide else 0.08, linewidth=0)
        (line,) = axes.plot(
            mark.x,
            mark.y,
            color=color,
            linestyle=(0, mark.style.dash) if mark.style.dash else "-",
            linewidth=2.6 if wide else 1.4,
            marker=MARKERS[mark.style.marker] if mark.marker_step else None,
            clip_on=False,  # markers at the edge are drawn whole
            markersize=5.5 if wide else 4.5,
            markevery=(mark.first_marker, mark.marker_step) if mark.marker_step else None,
        )
        return line
    axes.annotate(mark.words, (mark.x, mark.y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    return None


def finish(axes: Any, chart: Chart) -> None:
    """Title, ranges, ticks and grid."""
    weight = "bold" if chart.emphasized else "normal"
    axes.set_title(escaped(chart.title), loc="left" if chart.has_axes else "center", fontsize=10.5, fontweight=weight)
    axes.set(xlabel=chart.x.label, ylabel=chart.y.label)
    for axis, limits, set_ticks in (
        (chart.x, axes.set_xlim, axes.set_xticks),
        (chart.y, axes.set_ylim, axes.set_yticks),
    ):
        limits(axis.low, axis.high)
        set_ticks([tick.value for tick in axis.ticks], [escaped(tick.label) for tick in axis.ticks])
    if not chart.has_axes:
        axes.set_aspect("equal")
        axes.spines[:].set_color(LIGHT["rule-strong"])
        return
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x" if chart.rows else "y", color=LIGHT["rule"], linewidth=0.8)
    axes.set_axisbelow(True)


def escaped(words: str) -> str:
    """Dollar signs would start a formula."""
    return words.replace("$", r"\$")
