"""Differences to one selector, paired by seed: a point and its interval in each row."""

from collections.abc import Mapping

from lightning_diffal.studies.report.bars import WIDTH, shortened
from lightning_diffal.studies.report.markup import Markup, element, joined
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.statistics import Interval, area, paired_difference
from lightning_diffal.studies.report.svg import Frame, drawing, hue_class, line, markers, text, tick_label, ticks


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


def difference_chart(section: Section, differences: Mapping[str, Interval], reference: str, name: str) -> Markup:
    row, left, top = 26.0, 145.0, 28.0
    bottom = top + row * len(differences)
    low = min(0.0, *(interval.low for interval in differences.values()))
    high = max(0.0, *(interval.high for interval in differences.values()))
    pad = (high - low) * 0.05 or 0.01
    frame = Frame(left=left, right=WIDTH - 14, top=top, bottom=bottom, across=(low - pad, high + pad), up=(0, 1))
    parts = [text(0, 14, f"mean accuracy over the rounds, less {shortened(reference)}’s", "start", class_="title")]
    for value in ticks(*frame.across, 5):
        parts.append(line(frame.x(value), top, frame.x(value), bottom, "axis" if abs(value) < 1e-12 else "grid"))
        parts.append(text(frame.x(value), bottom, signed_tick(value), dy="1.4em"))
    order = {one.name: place for place, one in enumerate(section.series)}
    for place, (selector, interval) in enumerate(differences.items()):
        y = top + row * (place + 0.5)
        look = section.series[order[selector]].look
        whisker = line(frame.x(interval.low), y, frame.x(interval.high), y, "line")
        body = joined(
            text(left - 8, y, shortened(selector), "end", dominant_baseline="central"),
            whisker if interval.half is not None else "",
            markers([(frame.x(interval.mean), y)], look, 4.2),
        )
        parts.append(element("g", body, class_=f"{hue_class(look)} series-{order[selector]}"))
    return drawing(WIDTH, bottom + 26, name, joined(*parts))


def signed_tick(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{'+' if value > 0 else '−'}{tick_label(abs(value))}"
