"""Differences to one selector, paired by seed: a point and its interval in each row."""

from lightning_diffal.studies.report.charts import (
    Axis,
    Chart,
    Line,
    Points,
    Tick,
    row_axis,
    row_height,
    signed_tick_label,
    ticks,
)
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.statistics import Interval, area, paired_difference
from lightning_diffal.studies.report.style import Style


def areas(series: Series) -> dict[int, float]:
    """Mean accuracy over the rounds, by seed."""
    return {seed: area(series.accuracies(seed)) for seed in series.seeds}


def differences_to(section: Section, reference: Series) -> dict[str, Interval]:
    """Of every other selector with a seed in common, the best first."""
    found = {
        one.name: paired_difference(areas(one), areas(reference)) for one in section.series if one is not reference
    }
    known = {name: interval for name, interval in found.items() if interval is not None}
    return dict(sorted(known.items(), key=lambda item: -item[1].mean))


def difference_chart(section: Section, reference: Series) -> Chart:
    differences = differences_to(section, reference)
    order = {one.name: index for index, one in enumerate(section.series)}
    marks: list[Line | Points] = []
    for row, (name, interval) in enumerate(differences.items()):
        index, y = order[name], row + 0.5
        style = section.series[index].style
        if interval.half is not None:
            whisker = [interval.low, interval.high]
            marks.append(Line(x=whisker, y=[y, y], style=Style(style.hue), series=index))
        marks.append(Points(x=[interval.mean], y=[y], style=style, size=4.2, series=index))
    low = min(0.0, *(interval.low for interval in differences.values()))
    high = max(0.0, *(interval.high for interval in differences.values()))
    margin = (high - low) * 0.05 or 0.01
    low, high = low - margin, high + margin
    return Chart(
        title=f"{section.title}: difference to {reference.name}",
        x=Axis(
            low=low,
            high=high,
            label=f"mean accuracy over the rounds, minus that of {reference.name}",
            ticks=[Tick(value=value, label=signed_tick_label(value)) for value in ticks(low, high, 5)],
        ),
        y=row_axis(list(differences), [order[name] for name in differences]),
        marks=marks,
        height=row_height(len(differences)),
        rows=True,
    )
