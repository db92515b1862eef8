"""Bars: how each query was shared between exploring and refining, and where the seconds of a round went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from lightning_diffal.studies.report.curves import label_ticks
from lightning_diffal.studies.report.markup import Markup, element, joined
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.svg import Frame, axes, drawing, line, text, tick_label, ticks

WIDTH = 400.0
STAGES = ("fit", "embedding", "graph", "query")


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Of a selector that asks a graph: the share of exploring points in the query after each fit, mean over seeds."""

    series: Series
    labels: list[int]
    exploring: list[float]


def phases_of(section: Section) -> list[Phases]:
    """Selectors that ask no graph have no phases and are not here."""
    found = []
    for one in section.series:
        shares: dict[int, list[float]] = {}
        for seed in one.seeds:
            for step in one.runs[seed].rounds:
                known = [reached for reached in step.reached if reached is not None]
                if known:
                    shares.setdefault(step.labels, []).append(known.count(False) / len(known))
        if shares:
            labels = sorted(shares)
            found.append(Phases(series=one, labels=labels, exploring=[fmean(shares[count]) for count in labels]))
    return found


def phase_chart(section: Section, phases: Phases, name: str) -> Markup:
    """A bar for each query: exploring from below, refining from above."""
    step = section.beyond - section.labels[-1]
    frame = Frame(
        left=56,
        right=WIDTH - 17,
        top=26,
        bottom=140,
        across=(phases.labels[0] - step / 2, phases.labels[-1] + step / 2),
        up=(0.0, 1.0),
    )
    bars = []
    for count, share in zip(phases.labels, phases.exploring, strict=True):
        left, right = frame.x(count - 0.42 * step), frame.x(count + 0.42 * step)
        middle = frame.y(share)
        width = right - left
        bars.append(element("rect", x=left, y=frame.top, width=width, height=middle - frame.top, class_="refining"))
        bars.append(element("rect", x=left, y=middle, width=width, height=frame.bottom - middle, class_="exploring"))
    shares = axes(
        frame, "labels at the query", "share of the query", x_ticks=label_ticks(phases.labels), y_ticks=[0, 0.5, 1]
    )
    return drawing(WIDTH, 180, name, shares, *bars)


def seconds_of(section: Section) -> dict[str, dict[str, float]]:
    """Mean seconds of each stage, by selector: over all seeds, and over the rounds that had the stage."""
    found = {}
    for one in section.series:
        steps = [stages_of(step.seconds) for seed in one.seeds for step in one.runs[seed].rounds]
        taken = {stage: [step[stage] for step in steps if stage in step] for stage in STAGES}
        found[one.name] = {stage: fmean(values) if values else 0.0 for stage, values in taken.items()}
    return found


def stages_of(seconds: Mapping[str, float]) -> dict[str, float]:
    """What selectors do between graph and query, as scores, clusters or distances, is part of their query."""
    found = {stage: taken for stage, taken in seconds.items() if stage in STAGES[:-1]}
    rest = [taken for stage, taken in seconds.items() if stage not in found]
    return found | ({STAGES[-1]: sum(rest)} if rest else {})


def seconds_chart(seconds: Mapping[str, Mapping[str, float]], stages: Sequence[str], name: str, title: str) -> Markup:
    """A bar for each selector, its stages one after the other."""
    totals = {selector: sum(taken[stage] for stage in stages) for selector, taken in seconds.items()}
    row, left, right = 26.0, 145.0, WIDTH - 52
    top = 28.0
    bottom = top + row * len(seconds)
    frame = Frame(left=left, right=right, top=top, bottom=bottom, across=(0.0, max(totals.values()) or 1.0), up=(0, 1))
    shown = ticks(*frame.across, 4)
    parts = [text(0, 14, title, "start", class_="title")]
    parts += [line(frame.x(value), top, frame.x(value), bottom, "grid") for value in shown]
    parts += [text(frame.x(value), bottom, tick_label(value), dy="1.4em") for value in shown]
    for place, (selector, taken) in enumerate(seconds.items()):
        y, x = top + row * place, left
        parts.append(text(left - 8, y + row / 2, shortened(selector), "end", dominant_baseline="central"))
        for stage in stages:
            width = frame.x(taken[stage]) - left
            parts.append(element("rect", x=x, y=y + 5, width=width, height=row - 10, class_=f"stage stage-{stage}"))
            x += width
        parts.append(text(x + 6, y + row / 2, f"{totals[selector]:.3g}", "start", dominant_baseline="central"))
    return drawing(WIDTH, bottom + 26, name, joined(*parts))


def shortened(name: str) -> str:
    return name if len(name) <= 20 else name[:19] + "…"
