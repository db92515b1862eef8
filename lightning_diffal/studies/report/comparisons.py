"""Selectors compared with random and with diffusion, paired by seed: mean accuracy over the rounds, labels needed."""

from statistics import fmean

from lightning_diffal.report.charts import (
    Axis,
    Chart,
    Figure,
    Line,
    Points,
    Table,
    Tick,
    row_chart,
    tick_label,
    ticks,
)
from lightning_diffal.report.style import Style
from lightning_diffal.studies.report.captions import listed, share, signed
from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series
from lightning_diffal.studies.report.statistics import (
    Interval,
    LabelDifference,
    counted,
    labels_needed,
    mean_interval,
    paired_difference,
    paired_labels,
)


def difference_figures(section: Section) -> list[Figure]:
    """Differences to random and to diffusion, where they share seeds with another selector."""
    figures = []
    for reference in section.references:
        if differences := section.differences_to(reference):
            finding = difference_finding(differences, reference.name)
            single = all(interval.half is None for interval in differences.values())
            bars = "" if single else " Bars are 95% Student-t intervals over the shared seeds."
            chart = difference_chart(section, reference, differences, f"Differences to {reference.name}. {finding}")
            title = f"Difference to {reference.name}, paired by seed"
            figures.append(Figure(title=title, caption=f"{finding}{bars}", charts=[chart]))
    return figures


def difference_finding(differences: dict[str, Interval], reference: str) -> str:
    if all(interval.half is None for interval in differences.values()):
        return "One shared seed: no interval, so significance is unknown."
    significant = {name: interval.mean for name, interval in differences.items() if interval.significant}
    above = [name for name, mean in significant.items() if mean > 0]
    below = [name for name, mean in significant.items() if mean < 0]
    parts = []
    if above:
        parts.append(f"Significantly above {reference}: {listed(above)}.")
    if below:
        parts.append(f"Significantly below{'' if above else f' {reference}'}: {listed(below)}.")
    return " ".join(parts) or f"No selector differs significantly from {reference}."


def difference_chart(section: Section, reference: Series, differences: dict[str, Interval], description: str) -> Chart:
    """A point and its interval in each row."""
    order = {one.name: index for index, one in enumerate(section.series)}
    marks: list[Line | Points] = []
    for row, (name, interval) in enumerate(differences.items()):
        index, y = order[name], row + 0.5
        style = section.series[index].style
        if interval.half is not None:
            marks.append(Line(x=[interval.low, interval.high], y=[y, y], style=Style(style.hue), series=index))
        marks.append(Points(x=[interval.mean], y=[y], style=style, size=4.2, series=index))
    low = min(0.0, *(interval.low for interval in differences.values()))
    high = max(0.0, *(interval.high for interval in differences.values()))
    margin = (high - low) * 0.05 or 0.01
    low, high = low - margin, high + margin
    x = Axis(
        low=low,
        high=high,
        label=f"mean accuracy over the rounds, minus that of {reference.name}",
        ticks=[Tick(value=value, label=signed_tick_label(value)) for value in ticks(low, high, 5)],
    )
    title = f"{section.title}: difference to {reference.name}"
    return row_chart(title, description, x, marks, list(differences), [order[name] for name in differences])


def signed_tick_label(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{'+' if value > 0 else '−'}{tick_label(abs(value))}"


def area_table(section: Section) -> Table:
    calibrated = all(run.rounds[-1].calibration_error is not None for run in section.results)
    rows = []
    for one in section.by_area:
        half = mean_interval(list(one.areas.values())).half
        area = share(one.area) if half is None else f"{share(one.area)} ± {half:.3f}"
        differences = [difference_cell(one, reference) for reference in section.references]
        row = [one.name, str(len(one.runs)), area, *differences, share(one.means[-1])]
        if calibrated:
            row.append(share(fmean(run.rounds[-1].calibration_error or 0.0 for run in one.runs.values())))
        rows.append(row)
    head = ["selector", "seeds", "mean accuracy over the rounds", *paired_heads(section)]
    head += [f"accuracy at {section.labels[-1]:,} labels", *(["calibration error"] if calibrated else [])]
    return Table(
        caption="Area under the curve: mean accuracy over the rounds ± half the 95% interval, and differences paired "
        "by seed",
        head=head,
        rows=rows,
    )


def paired_heads(section: Section) -> list[str]:
    return [f"minus {reference.name}, paired" for reference in section.references]


def difference_cell(one: Series, reference: Series) -> str:
    if one is reference:
        return "–"
    interval = paired_difference(one.areas, reference.areas)
    return "no shared seed" if interval is None else bracketed(interval, 3)


def bracketed(interval: Interval, digits: int) -> str:
    """+0.021 [+0.010, +0.032], 5 seeds."""
    mean = signed(interval.mean, digits)
    if interval.half is None:
        return f"{mean}, 1 seed"
    return f"{mean} [{signed(interval.low, digits)}, {signed(interval.high, digits)}], {interval.seeds} seeds"


def labels_tables(section: Section) -> list[Table]:
    """Until 90% of the best final accuracy, and until the highest multiple of 0.05 that random, else the best, reaches.

    Without targets that every run reaches with its initial labels.
    """
    best = section.by_final_accuracy[0].means[-1]
    random = section.named("random")
    rounded = int((max(random.means) if random else best) * 20 + 1e-9) / 20
    targets = {0.9 * best: "90% of the best final accuracy"}
    if abs(0.9 * best - rounded) >= 0.005:
        targets[rounded] = "reached by the mean of random" if random else "reached by the best mean"
    lowest = min(min(one.by_round[0]) for one in section.series)
    return [labels_table(section, target, why) for target, why in targets.items() if target > lowest]


def labels_table(section: Section, target: float, why: str) -> Table:
    """Labels of the first fit that reaches the target, fewest first; selectors that never do are at the end."""
    needs = {
        one.name: {seed: labels_needed(section.labels, found, target) for seed, found in one.accuracies.items()}
        for one in section.series
    }
    mean = {name: fmean(counted(count, section.beyond) for count in need.values()) for name, need in needs.items()}
    missed = {name: list(need.values()).count(None) for name, need in needs.items()}
    rows = []
    for one in sorted(section.series, key=lambda one: (missed[one.name] == len(one.runs), mean[one.name])):
        seeds = len(one.runs)
        labels = f"at least {mean[one.name]:,.1f}" if missed[one.name] else f"{mean[one.name]:,.1f}"
        if missed[one.name] == seeds:
            labels = f"not within {section.labels[-1]:,} labels"
        differences = [
            "–"
            if one is other
            else label_difference_cell(paired_labels(needs[one.name], needs[other.name], section.beyond))
            for other in section.references
        ]
        rows.append([one.name, labels, f"{seeds - missed[one.name]} of {seeds}", *differences])
    return Table(
        caption=f"Labels until accuracy {share(target)} ({why})",
        head=["selector", "labels, mean over seeds", "seeds that reach it", *paired_heads(section)],
        rows=rows,
    )


def label_difference_cell(difference: LabelDifference | None) -> str:
    if difference is None:
        return "no shared seed"
    if difference.interval is None:
        return f"unknown: missed in {difference.missed} of {difference.pairs} pairs, on both sides"
    if difference.bound == "exact":
        return bracketed(difference.interval, 1)
    mean = signed(difference.interval.mean, 1)
    return f"{difference.bound} {mean}, missed in {difference.missed} of {difference.pairs} pairs"
