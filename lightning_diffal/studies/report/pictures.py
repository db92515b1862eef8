"""The same figures as PNGs, for READMEs."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lightning_diffal.studies.report.bars import STAGES, phases_of, seconds_of
from lightning_diffal.studies.report.board import KIND_LOOKS, KINDS, Board, boards_of
from lightning_diffal.studies.report.curves import Curve, accuracy_curves, variance_curves
from lightning_diffal.studies.report.look import LIGHT, Look
from lightning_diffal.studies.report.sections import Section

SHAPES = {"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v", "cross": "x", "plus": "+"}
STAGE_COLOURS = dict(zip(STAGES, ("#c9cdd2", LIGHT["sky"], LIGHT["vermilion"], LIGHT["ink"]), strict=True))
WORDS = {"first": "first labels", "exploring": "exploring", "refining": "refining", "asked": "asked without a graph"}


def draw_pictures(section: Section, folder: Path) -> None:
    """SECTION-accuracy.png and its like; those without data are not drawn."""
    draw_curves(section, accuracy_curves(section), "accuracy", folder / f"{section.slug}-accuracy.png")
    if curves := variance_curves(section):
        draw_curves(section, curves, "variance of accuracy over seeds", folder / f"{section.slug}-variance.png")
    if phases_of(section):
        draw_phases(section, folder / f"{section.slug}-phases.png")
    draw_seconds(section, folder / f"{section.slug}-seconds.png")
    if boards := boards_of(section):
        draw_boards(boards, folder / f"{section.slug}-asked.png")


def blank(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure apart from pyplot: nothing global is touched, and no window can open."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Figure, path: Path) -> None:
    # No version of matplotlib and no date in the file: same results, same bytes.
    figure.savefig(path, metadata={"Software": None})


def line_style(look: Look) -> Any:
    return (0, look.dash) if look.dash else "-"


def draw_curves(section: Section, curves: list[Curve], up: str, path: Path) -> None:
    figure, grid = blank(8.4, 4.6)
    axes = grid[0][0]
    for place, curve in enumerate(reversed(curves)):
        look = curve.series.look
        if curve.spread:
            opacity = 0.2 if look.wide else 0.08
            axes.fill_between(section.labels, curve.low, curve.high, color=LIGHT[look.hue], alpha=opacity, linewidth=0)
        every = max(1, round(len(section.labels) / 9))
        axes.plot(
            section.labels,
            curve.values,
            color=LIGHT[look.hue],
            linestyle=line_style(look),
            linewidth=2.6 if look.wide else 1.4,
            marker=SHAPES[look.marker],
            markersize=5.5 if look.wide else 4.5,
            markevery=(place % every, every),
            label=plain(curve.series.name),
            zorder=3 if look.wide else 2,
        )
    finish(axes, section.title, "labels", up)
    handles, names = axes.get_legend_handles_labels()
    lines = sorted(zip(handles, names, strict=True), key=lambda pair: -float(pair[0].get_ydata()[-1]))
    handles, names = zip(*lines, strict=True)
    axes.legend(
        handles, names, frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3.2
    )
    save(figure, path)


def draw_phases(section: Section, path: Path) -> None:
    phases = phases_of(section)
    figure, grid = blank(8.4, 1.1 + 1.5 * len(phases), rows=len(phases))
    step = section.beyond - section.labels[-1]
    for axes, one in zip(grid[:, 0], phases, strict=True):
        axes.bar(one.labels, one.exploring, 0.84 * step, color=LIGHT["blue"], label="exploring")
        rest = [1 - share for share in one.exploring]
        axes.bar(
            one.labels,
            rest,
            0.84 * step,
            bottom=one.exploring,
            color="#f0c27a",
            hatch="///",
            edgecolor="white",
            linewidth=0,
            label="refining",
        )
        finish(axes, f"{section.title}: {plain(one.series.name)}", "", "share of the query")
        axes.set_ylim(0, 1)
    grid[-1, 0].set_xlabel("labels at the query")
    grid[0, 0].legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, path)


def draw_seconds(section: Section, path: Path) -> None:
    seconds = seconds_of(section)
    figure, grid = blank(8.4, 1.3 + 0.3 * len(seconds), columns=2)
    names = [plain(name) for name in seconds]
    for axes, shown, title in zip(grid[0], (STAGES, STAGES[1:]), ("whole round", "without the fit"), strict=True):
        start = [0.0] * len(seconds)
        for stage in shown:
            taken = [values[stage] for values in seconds.values()]
            colour = STAGE_COLOURS[stage]
            axes.barh(names, taken, left=start, color=colour, edgecolor="white", linewidth=0.6, label=stage)
            start = [before + more for before, more in zip(start, taken, strict=True)]
        finish(axes, f"{section.title}: {title}" if axes is grid[0][0] else title, "seconds per round", "")
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color="#e3e5e8", linewidth=0.8)
    grid[0][1].set_yticklabels([])
    handles, words = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, words, frameon=False, fontsize=8.5, ncols=len(STAGES), loc="outside lower center")
    save(figure, path)


def draw_boards(boards: list[Board], path: Path) -> None:
    columns = min(4, len(boards))
    rows = -(-len(boards) // columns)
    figure, grid = blank(2.15 * columns, 2.4 * rows + 0.4, rows, columns)
    for axes in grid.flat[len(boards) :]:
        axes.set_axis_off()
    for axes, board in zip(grid.flat, boards, strict=False):
        squares = board.squares
        tint = [[(row + column) % 2 for column in range(squares)] for row in range(squares)]
        axes.imshow(tint, extent=(0, 1, 0, 1), origin="lower", cmap="Greys", vmin=0, vmax=9, interpolation="nearest")
        for kind in KINDS:
            look = KIND_LOOKS[kind]
            points = [(point.x, point.y) for point in board.points if point.kind == kind]
            if points:
                colour = LIGHT[look.hue]
                face = {} if look.marker == "plus" else {"facecolors": "none" if kind == "exploring" else colour}
                axes.scatter(
                    *zip(*points, strict=True),
                    s=16,
                    marker=SHAPES[look.marker],
                    color=None if face else colour,
                    edgecolors=colour if face else None,
                    linewidths=1,
                    label=WORDS[kind],
                    **face,
                )
        axes.set(xticks=[], yticks=[], xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.spines[:].set_color("#9aa0a6")
        axes.set_title(plain(board.series.name), fontsize=10, fontweight="bold" if board.series.look.wide else "normal")
    found = dict(
        reversed([pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels()[::-1], strict=True)])
    )
    shown = {words: found[words] for words in WORDS.values() if words in found}
    figure.legend(
        list(shown.values()), list(shown), frameon=False, fontsize=9, ncols=len(shown), loc="outside lower center"
    )
    save(figure, path)


def finish(axes: Any, title: str, across: str, up: str) -> None:
    axes.set_title(plain(title), loc="left", fontsize=11)
    axes.set(xlabel=across, ylabel=up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e5e8", linewidth=0.8)
    axes.set_axisbelow(True)


def plain(words: str) -> str:
    """Dollar signs would start a formula."""
    return words.replace("$", r"\$")
