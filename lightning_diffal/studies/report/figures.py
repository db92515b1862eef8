"""The figures of a section as HTML: heading, caption, charts, legend and numbers."""

from collections.abc import Sequence
from statistics import fmean

from lightning_diffal.studies.report.captions import (
    at_the_end,
    board_finding,
    board_name,
    difference_finding,
    phases_finding,
    share,
    variance_finding,
)
from lightning_diffal.studies.report.checkerboard import KIND_STYLES, KINDS, Board, board_chart, boards_of
from lightning_diffal.studies.report.curves import (
    Curve,
    accuracy_charts,
    accuracy_curves,
    variance_charts,
    variance_curves,
)
from lightning_diffal.studies.report.differences import difference_chart, differences_to
from lightning_diffal.studies.report.markup import Markup, element, joined
from lightning_diffal.studies.report.query_phases import phase_chart, phases_of
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.svg import draw, hue_class, markers, swatch
from lightning_diffal.studies.report.tables import (
    boards_table,
    curve_table,
    numbers,
    phases_table,
    seconds_table,
)
from lightning_diffal.studies.report.timings import STAGES, seconds_of, timing_charts

BAND = "Lines are means over the seeds; bands are ± one standard deviation (n − 1), not confidence intervals."


def figure(title: str, caption: str, *content: str, labels: str | None = None) -> Markup:
    head = element("figcaption", element("h3", title), element("p", caption))
    return element("figure", head, *content, data_labels=labels)


def accuracy_figure(section: Section) -> Markup:
    curves = accuracy_curves(section)
    finding = at_the_end(section)
    name = f"Accuracy against labels, {len(curves)} selectors. {finding}"
    caption = BAND if any(curve.spread for curve in curves) else "One seed, so there is no band."
    (chart,) = accuracy_charts(section)
    body = element("div", draw(chart, name), legend(section), class_="main-figure")
    measured = "Accuracy, mean ± standard deviation over seeds" if caption == BAND else "Accuracy"
    table = curve_table(section, curves, measured, 3)
    return figure("Accuracy against labels", f"{finding} {caption}", body, numbers(table))


def legend(section: Section) -> Markup:
    """A checkbox for each selector, for all figures of the section; the best final accuracy first."""
    last = len(section.labels) - 1
    order = sorted(range(len(section.series)), key=lambda index: -fmean(section.series[index].at(last)))
    keys = []
    for index in order:
        one = section.series[index]
        box = element("input", type="checkbox", checked=True, class_=f"show-{index}", aria_label=f"Show {one.name}")
        value = element("span", share(fmean(one.at(last))), class_="value")
        keys.append(element("label", box, *key_parts(one), value, class_=key_class(one)))
    title = element("legend", f"Selectors, with their accuracy at {section.labels[-1]:,} labels. Untick to hide.")
    return element("fieldset", title, element("div", *keys, class_="keys"), class_="legend")


def key(section: Section, curves: Sequence[Curve]) -> Markup:
    """A legend without checkboxes; screen readers get the tables instead."""
    places = {one.name: index for index, one in enumerate(section.series)}
    keys = [
        element(
            "span", *key_parts(curve.series), class_=f"{key_class(curve.series)} series-{places[curve.series.name]}"
        )
        for curve in curves
    ]
    return element("div", *keys, class_="keys", aria_hidden="true")


def key_parts(one: Series) -> list[Markup]:
    return [swatch(one.style), element("span", one.name, class_="name")]


def key_class(one: Series) -> str:
    return "key wide" if one.style.wide else "key"


def variance_figure(section: Section) -> Markup:
    title = "Variance of accuracy against labels"
    curves = variance_curves(section)
    if not curves:
        return figure(title, "One seed has no variance; run more seeds to see it.")
    finding = variance_finding(curves)
    left_out = [one.name for one in section.series if len(one.runs) == 1]
    noted = f" Not shown, with only one seed: {', '.join(left_out)}." if left_out else ""
    (chart,) = variance_charts(section)
    table = curve_table(section, curves, "Variance of accuracy over seeds (n − 1)", 6)
    return figure(title, f"{finding}{noted}", draw(chart, f"{title}. {finding}"), key(section, curves), numbers(table))


def difference_figures(section: Section) -> Markup:
    """Differences to random and to diffusion, where they share seeds with another selector."""
    found = []
    for reference in (section.named("random"), section.named("diffusion")):
        differences = differences_to(section, reference) if reference else {}
        if reference and differences:
            finding = difference_finding(section, reference)
            single = all(interval.half is None for interval in differences.values())
            bars = "" if single else " Bars are 95% Student-t intervals over the shared seeds."
            chart = draw(difference_chart(section, reference), f"Differences to {reference.name}. {finding}")
            found.append(figure(f"Difference to {reference.name}, paired by seed", f"{finding}{bars}", chart))
    return element("div", *found, class_="pair") if found else joined()


def phases_figure(section: Section) -> Markup:
    phases = phases_of(section)
    if not phases:
        return joined()
    charts = []
    for one in phases:
        finding = phases_finding(one)
        charts.append(joined(element("p", finding, class_="soft"), draw(phase_chart(section, one), finding)))
    keys = blocks(
        [("exploring", "exploring, from below: no label had reached the point"), ("refining", "refining, from above")]
    )
    caption = "Share of each query, mean over seeds, of selectors with a graph."
    return figure("Exploring and refining", caption, keys, *charts, numbers(phases_table(phases)))


def blocks(pairs: Sequence[tuple[str, str]]) -> Markup:
    keys = [
        element("span", element("i", class_=f"block fill-{kind}"), element("span", words), class_="key")
        for kind, words in pairs
    ]
    return element("div", *keys, class_="inline-keys", aria_hidden="true")


def seconds_figure(section: Section) -> Markup:
    seconds = seconds_of(section)
    totals = {name: sum(taken.values()) for name, taken in seconds.items()}
    queries = {name: sum(taken[stage] for stage in STAGES[1:]) for name, taken in seconds.items()}
    slow = max(queries, key=lambda name: queries[name])
    finding = (
        f"A round takes {min(totals.values()):.3g} to {max(totals.values()):.3g} s; the slowest query is {slow}'s, "
        f"{queries[slow]:.3g} s of {totals[slow]:.3g} s."
    )
    charts = [draw(chart, f"{chart.x.label}. {finding}") for chart in timing_charts(section)]
    keys = blocks([(stage, stage) for stage in STAGES])
    caption = (
        f"{finding} Means over seeds and the rounds that had the stage; query is everything the selector computes "
        "except the graph."
    )
    table = seconds_table(seconds)
    return figure("Seconds per round", caption, keys, element("div", *charts, class_="pair"), numbers(table))


def board_figure(section: Section) -> Markup:
    boards = boards_of(section)
    if not boards:
        return joined()
    seeds = sorted({board.run.seed for board in boards})
    shown = f"Seed {seeds[0]}" if len(seeds) == 1 else "Selectors share no seed; each board names its own"
    caption = (
        f"{board_finding(boards)} {shown}. Tinted squares are class 1, the others class 0. "
        "Beside each name: accuracy after training on the points shown."
    )
    panels = [board_panel(board, named=len(seeds) > 1, index=index) for index, board in enumerate(boards)]
    content = [
        board_keys(boards),
        player(section) if len(section.labels) > 1 else "",
        element("div", *panels, class_="boards"),
        numbers(boards_table(boards)),
    ]
    frames = " ".join(map(str, section.labels)) if len(section.labels) > 1 else None
    return figure("Queried points, round by round", caption, *content, labels=frames)


def board_panel(board: Board, *, named: bool, index: int) -> Markup:
    accuracies = [share(step.accuracy) for step in board.run.rounds]
    name = f"{board.series.name}, seed {board.run.seed}" if named else board.series.name
    accuracy = element("span", accuracies[-1], class_="accuracy", data_accuracies=" ".join(accuracies))
    title = element("p", element("span", name, class_="emphasized" if board.series.style.wide else None), accuracy)
    return element("div", title, draw(board_chart(board), board_name(board)), class_=f"series-{index}")


def board_keys(boards: Sequence[Board]) -> Markup:
    keys = [
        element("span", dot(kind), element("span", name), class_="key")
        for kind, name in KINDS.items()
        if any(board.of_kind(kind) for board in boards)
    ]
    return element("div", *keys, class_="inline-keys")


def dot(kind: str) -> Markup:
    style = KIND_STYLES[kind]
    hollow = "hollow " if kind == "exploring" else ""
    mark = element("g", markers([(7, 7)], style, 4.5), class_=f"{hollow}{hue_class(style)}")
    return element("svg", mark, viewBox="0 0 14 14", class_="dot", aria_hidden="true")


def player(section: Section) -> Markup:
    """Hidden until the script shows it; without JavaScript the boards show all rounds."""
    last = len(section.labels) - 1
    button = element("button", "Play", type="button")
    slider = element("input", type="range", min="0", max=str(last), value=str(last), aria_label="Fit to show")
    return element("div", button, slider, element("output", aria_live="off"), class_="player", hidden=True)
