"""The numbers of every figure, for screen readers and for further use."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from lightning_diffal.studies.report.captions import by_area, share, signed
from lightning_diffal.studies.report.checkerboard import KINDS, Board
from lightning_diffal.studies.report.curves import Curve
from lightning_diffal.studies.report.differences import areas
from lightning_diffal.studies.report.markup import Markup, element
from lightning_diffal.studies.report.query_phases import Phases
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.statistics import (
    Interval,
    LabelDifference,
    counted,
    labels_needed,
    mean_interval,
    paired_difference,
    paired_labels,
)
from lightning_diffal.studies.report.timings import STAGES

NOTHING = "–"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table that scrolls within its box. The first cell of a row is its header."""
    titles = element("tr", *(element("th", title, scope="col") for title in head))
    lines = [
        element("tr", element("th", row[0], scope="row"), *(element("td", value) for value in row[1:])) for row in rows
    ]
    body = element(
        "table", element("caption", element("span", caption)), element("thead", titles), element("tbody", *lines)
    )
    return element("div", body, class_="scroll", tabindex="0", role="region", aria_label=caption)


def numbers(*tables: str) -> Markup:
    return element("details", element("summary", "All numbers"), *tables)


def curve_table(section: Section, curves: Sequence[Curve], caption: str, digits: int) -> Markup:
    """A row for each label count, a column for each selector; the band after ±."""
    rows = []
    for index, count in enumerate(section.labels):
        cells = [
            f"{curve.values[index]:.{digits}f}" + (f" ± {curve.spread[index]:.{digits}f}" if curve.spread else "")
            for curve in curves
        ]
        rows.append([f"{count:,}", *cells])
    return table(caption, ["labels", *(curve.series.name for curve in curves)], rows)


def phases_table(phases: Sequence[Phases]) -> Markup:
    labels = sorted({count for one in phases for count in one.labels})
    shares = [dict(zip(one.labels, one.exploring, strict=True)) for one in phases]
    rows = [
        [
            f"{count:,}",
            *(f"{known[count]:.0%} / {1 - known[count]:.0%}" if count in known else NOTHING for known in shares),
        ]
        for count in labels
    ]
    head = ["labels", *(one.series.name for one in phases)]
    return table("Exploring / refining share of each query, mean over seeds", head, rows)


def seconds_table(seconds: Mapping[str, Mapping[str, float]]) -> Markup:
    rows = [
        [name, *(f"{value:.3f}" if value else NOTHING for value in taken.values()), f"{sum(taken.values()):.3f}"]
        for name, taken in seconds.items()
    ]
    return table("Mean seconds per round, by stage", ["selector", *STAGES, "all"], rows)


def boards_table(boards: Sequence[Board]) -> Markup:
    rows = [
        [
            board.series.name,
            str(board.run.seed),
            *(str(board.of_kind(kind)) for kind in KINDS),
            f"{board.of_class(0)} / {board.of_class(1)}",
            f"{board.covered} of {board.squares**2}",
            NOTHING if board.median_border_distance is None else f"{board.median_border_distance:.3f}",
        ]
        for board in boards
    ]
    head = ["selector", "seed", *KINDS.values()]
    head += ["of class 0 / 1", "squares with a label", "median distance to a border (squares)"]
    return table("Points on the board, all rounds", head, rows)


def area_table(section: Section) -> Markup:
    references = [one for one in (section.named("random"), section.named("diffusion")) if one]
    calibrated = all(run.rounds[-1].calibration_error is not None for run in section.results)
    rows = []
    for one, mean in by_area(section):
        interval = mean_interval(list(areas(one).values()))
        own = share(mean) if interval.half is None else f"{share(mean)} ± {interval.half:.3f}"
        last = fmean(one.at(len(section.labels) - 1))
        differences = [difference(one, reference) for reference in references]
        errors = [one.runs[seed].rounds[-1].calibration_error or 0.0 for seed in one.seeds]
        error = [share(fmean(errors))] if calibrated else []
        rows.append([one.name, str(len(one.runs)), own, *differences, share(last), *error])
    head = ["selector", "seeds", "mean accuracy over the rounds"]
    head += [f"minus {reference.name}, paired" for reference in references]
    return table(
        "Area under the curve: mean accuracy over the rounds ± half the 95% interval, and differences paired by seed",
        [*head, f"accuracy at {section.labels[-1]:,} labels", *(["calibration error"] if calibrated else [])],
        rows,
    )


def difference(one: Series, reference: Series) -> str:
    if one is reference:
        return NOTHING
    interval = paired_difference(areas(one), areas(reference))
    return "no shared seed" if interval is None else bracketed(interval, 3)


def bracketed(interval: Interval, digits: int) -> str:
    """+0.021 [+0.010, +0.032], 5 seeds."""
    mean = signed(interval.mean, digits)
    if interval.half is None:
        return f"{mean}, 1 seed"
    return f"{mean} [{signed(interval.low, digits)}, {signed(interval.high, digits)}], {interval.seeds} seeds"


def targets_of(section: Section) -> list[tuple[float, str]]:
    """90% of the best final accuracy, and the highest multiple of 0.05 that random, else the best, reaches.

    Not those that every run reaches with its initial labels.
    """
    last = len(section.labels) - 1
    best = max(fmean(one.at(last)) for one in section.series)
    random = section.named("random")
    base = max(fmean(random.at(index)) for index in range(last + 1)) if random else best
    rounded = int(base * 20 + 1e-9) / 20
    named = [(0.9 * best, "90% of the best final accuracy")]
    if abs(0.9 * best - rounded) >= 0.005:
        named.append((rounded, "reached by the mean of random" if random else "reached by the best mean"))
    first = min(value for one in section.series for value in one.at(0))
    return [(target, why) for target, why in named if target > first]


def needed_by(section: Section, one: Series, target: float) -> dict[int, int | None]:
    return {seed: labels_needed(section.labels, one.accuracies(seed), target) for seed in one.seeds}


def labels_table(section: Section, target: float, why: str) -> Markup:
    """Labels of the first fit that reaches the target, fewest first; selectors that never do are at the end."""
    references = [one for one in (section.named("random"), section.named("diffusion")) if one]
    needs = {one.name: needed_by(section, one, target) for one in section.series}
    mean = {name: fmean(counted(count, section.beyond) for count in need.values()) for name, need in needs.items()}
    missed = {name: list(need.values()).count(None) for name, need in needs.items()}
    ranked = sorted(section.series, key=lambda one: (missed[one.name] == len(one.runs), mean[one.name]))
    rows = []
    for one in ranked:
        differences = [
            NOTHING
            if one is other
            else label_difference_cell(paired_labels(needs[one.name], needs[other.name], section.beyond))
            for other in references
        ]
        labels = needed_cell(section, mean[one.name], missed[one.name], len(one.runs))
        rows.append([one.name, labels, f"{len(one.runs) - missed[one.name]} of {len(one.runs)}", *differences])
    head = ["selector", "labels, mean over seeds", "seeds that reach it"]
    head += [f"minus {reference.name}, paired" for reference in references]
    return table(f"Labels until accuracy {share(target)} ({why})", head, rows)


def needed_cell(section: Section, mean: float, missed: int, seeds: int) -> str:
    if missed == seeds:
        return f"not within {section.labels[-1]:,} labels"
    return f"at least {mean:,.1f}" if missed else f"{mean:,.1f}"


def label_difference_cell(difference: LabelDifference | None) -> str:
    if difference is None:
        return "no shared seed"
    if difference.interval is None:
        return f"unknown: missed in {difference.missed} of {difference.pairs} pairs, on both sides"
    if difference.bound == "exact":
        return bracketed(difference.interval, 1)
    mean = signed(difference.interval.mean, 1)
    return f"{difference.bound} {mean}, missed in {difference.missed} of {difference.pairs} pairs"


def settings_list(section: Section) -> Markup:
    rows = [(name.replace("_", " "), shown(value)) for name, value in sorted(section.settings.items())]
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in rows), class_="settings"
    )


def shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: NOTHING, True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(inner)}" for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
