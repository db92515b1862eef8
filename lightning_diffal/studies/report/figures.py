"""The figures of a section: heading, what is shown, the drawing, its key and its numbers."""

from collections.abc import Sequence
from statistics import fmean

from lightning_diffal.studies.report.bars import (
    STAGES,
    phase_chart,
    phases_of,
    seconds_chart,
    seconds_of,
)
from lightning_diffal.studies.report.board import KIND_LOOKS, KINDS, Board, board_chart, boards_of
from lightning_diffal.studies.report.curves import Curve, accuracy_curves, curve_chart, variance_curves
from lightning_diffal.studies.report.differences import difference_chart, differences_to
from lightning_diffal.studies.report.look import Look
from lightning_diffal.studies.report.markup import Markup, element, joined
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.svg import hue_class, markers, swatch
from lightning_diffal.studies.report.tables import (
    boards_table,
    curve_table,
    numbers,
    phases_table,
    seconds_table,
)
from lightning_diffal.studies.report.words import (
    at_the_end,
    board_finding,
    board_name,
    difference_finding,
    phases_finding,
    share,
    variance_finding,
)

BAND = (
    "Lines are means over the seeds, bands one standard deviation of them (n − 1): the spread of runs, not an interval."
)


def figure(title: str, caption: str, *content: str, labels: str | None = None) -> Markup:
    head = element("figcaption", element("h3", title), element("p", caption))
    return element("figure", head, *content, data_labels=labels)


def accuracy_figure(section: Section) -> Markup:
    curves = accuracy_curves(section)
    finding = at_the_end(section)
    name = f"Accuracy against labels, {len(curves)} selectors. {finding}"
    caption = BAND if any(curve.spread for curve in curves) else "One seed: there is no band."
    chart = curve_chart(section, curves, "accuracy", name, from_zero=False)
    body = element("div", chart, switches(section), class_="main-figure")
    measured = "Accuracy, mean ± standard deviation over seeds" if caption == BAND else "Accuracy"
    table = curve_table(section, curves, measured, 3)
    return figure("Accuracy against labels", f"{finding} {caption}", body, numbers(table))


def switches(section: Section) -> Markup:
    """A key whose entries can be switched off, for all figures of the section; the best at the end first."""
    last = len(section.labels) - 1
    order = sorted(range(len(section.series)), key=lambda place: -fmean(section.series[place].at(last)))
    keys = []
    for place in order:
        one = section.series[place]
        box = element("input", type="checkbox", checked=True, class_=f"show-{place}", aria_label=f"Show {one.name}")
        value = element("span", share(fmean(one.at(last))), class_="value")
        keys.append(element("label", box, *key_parts(one), value, class_=key_class(one)))
    title = element("legend", f"Selectors, with their accuracy at {section.labels[-1]:,} labels. Untick to hide.")
    return element("fieldset", title, element("div", *keys, class_="keys"), class_="legend")


def key(section: Section, curves: Sequence[Curve]) -> Markup:
    """The same, only to be read; the tables say it to those who listen."""
    places = {one.name: place for place, one in enumerate(section.series)}
    keys = [
        element(
            "span", *key_parts(curve.series), class_=f"{key_class(curve.series)} series-{places[curve.series.name]}"
        )
        for curve in curves
    ]
    return element("div", *keys, class_="keys", aria_hidden="true")


def key_parts(one: Series) -> list[Markup]:
    return [swatch(one.look), element("span", one.name, class_="name")]


def key_class(one: Series) -> str:
    return "key wide" if one.look.wide else "key"


def variance_figure(section: Section) -> Markup:
    title = "Variance of accuracy against labels"
    curves = variance_curves(section)
    if not curves:
        return figure(title, "One seed has no variance: run more seeds to see it.")
    finding = variance_finding(curves)
    left_out = [one.name for one in section.series if len(one.runs) == 1]
    noted = f" Not shown, having one seed: {', '.join(left_out)}." if left_out else ""
    chart = curve_chart(section, curves, "variance over seeds", f"{title}. {finding}", from_zero=True)
    table = curve_table(section, curves, "Variance of accuracy over seeds (n − 1)", 6)
    return figure(title, f"{finding}{noted}", chart, key(section, curves), numbers(table))


def difference_figures(section: Section) -> Markup:
    """Against random and against diffusion, where they are there and share seeds with another."""
    found = []
    for reference in (section.named("random"), section.named("diffusion")):
        differences = differences_to(section, reference) if reference else {}
        if reference and differences:
            finding = difference_finding(section, reference)
            single = all(interval.half is None for interval in differences.values())
            bars = "" if single else " Bars are 95% Student-t intervals over the shared seeds."
            chart = difference_chart(
                section, differences, reference.name, f"Differences to {reference.name}. {finding}"
            )
            found.append(figure(f"Difference to {reference.name}, paired by seed", f"{finding}{bars}", chart))
    return element("div", *found, class_="pair") if found else joined()


def phases_figure(section: Section) -> Markup:
    phases = phases_of(section)
    if not phases:
        return joined()
    charts = []
    for one in phases:
        finding = phases_finding(one)
        charts.append(joined(element("p", finding, class_="soft"), phase_chart(section, one, finding)))
    keys = blocks(
        [("exploring", "exploring, from below: no label had reached the point"), ("refining", "refining, from above")]
    )
    caption = "Share of each query, mean over seeds. Selectors that ask no graph are not shown."
    return figure("Exploring and refining", caption, keys, *charts, numbers(phases_table(phases)))


def blocks(pairs: Sequence[tuple[str, str]]) -> Markup:
    keys = [
        element("span", element("i", class_=f"block {kind}"), element("span", words), class_="key")
        for kind, words in pairs
    ]
    return element("div", *keys, class_="inline-keys", aria_hidden="true")


def seconds_figure(section: Section) -> Markup:
    seconds, asking = seconds_of(section), STAGES[1:]
    totals = {name: sum(taken.values()) for name, taken in seconds.items()}
    queries = {name: sum(taken[stage] for stage in asking) for name, taken in seconds.items()}
    slow = max(queries, key=lambda name: queries[name])
    finding = (
        f"A round takes {min(totals.values()):.3g} to {max(totals.values()):.3g} s; choosing what to ask takes longest "
        f"with {slow}, {queries[slow]:.3g} s of {totals[slow]:.3g}."
    )
    whole = seconds_chart(seconds, STAGES, f"Seconds per round. {finding}", "seconds per round")
    alone = seconds_chart(seconds, asking, f"Seconds per round without the fit. {finding}", "the same without the fit")
    keys = blocks([(f"stage-{stage}", stage) for stage in STAGES])
    caption = (
        f"{finding} Mean over seeds and the rounds that had the stage; "
        "query is all that the selector does beside the graph."
    )
    table = seconds_table(seconds)
    return figure("Seconds per round", caption, keys, element("div", whole, alone, class_="pair"), numbers(table))


def board_figure(section: Section) -> Markup:
    boards = boards_of(section)
    if not boards:
        return joined()
    seeds = sorted({board.run.seed for board in boards})
    told = f"Seed {seeds[0]}" if len(seeds) == 1 else "Selectors share no seed; each board names its own"
    caption = (
        f"{board_finding(boards)} {told}. Tinted squares are class 1, the others class 0. "
        "Beside each name: accuracy of the fit on the points shown."
    )
    panels = [board_panel(board, named=len(seeds) > 1, place=place) for place, board in enumerate(boards)]
    content = [
        board_keys(boards),
        player(section) if len(section.labels) > 1 else "",
        element("div", *panels, class_="boards"),
        numbers(boards_table(boards)),
    ]
    frames = " ".join(map(str, section.labels)) if len(section.labels) > 1 else None
    return figure("Points asked, round by round", caption, *content, labels=frames)


def board_panel(board: Board, *, named: bool, place: int) -> Markup:
    accuracies = [share(step.accuracy) for step in board.run.rounds]
    name = f"{board.series.name}, seed {board.run.seed}" if named else board.series.name
    told = element("span", accuracies[-1], class_="accuracy", data_accuracies=" ".join(accuracies))
    title = element("p", element("span", name, class_="own" if board.series.look.wide else None), told)
    return element("div", title, board_chart(board, board_name(board)), class_=f"series-{place}")


def board_keys(boards: Sequence[Board]) -> Markup:
    words = {
        "first": "first labels",
        "exploring": "exploring",
        "refining": "refining",
        "asked": "asked without a graph",
    }
    keys = [
        element("span", dot(KIND_LOOKS[kind], kind), element("span", words[kind]), class_="key")
        for kind in KINDS
        if any(board.of_kind(kind) for board in boards)
    ]
    return element("div", *keys, class_="inline-keys")


def dot(look: Look, kind: str) -> Markup:
    mark = element("g", markers([(7, 7)], look, 4.5), class_=f"{kind} {hue_class(look)}")
    return element("svg", mark, viewBox="0 0 14 14", class_="dot", aria_hidden="true")


def player(section: Section) -> Markup:
    """Hidden until the script shows it: without one, the boards hold all rounds."""
    last = len(section.labels) - 1
    button = element("button", "Play", type="button")
    slider = element("input", type="range", min="0", max=str(last), value=str(last), aria_label="Fit to show")
    return element("div", button, slider, element("output", aria_live="off"), class_="player", hidden=True)
