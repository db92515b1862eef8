"""How much of each query explores and how much refines, for selectors with a graph."""

from dataclasses import dataclass
from statistics import fmean

from lightning_diffal.studies.report.charts import Bars, Chart, label_axis, number_axis
from lightning_diffal.studies.report.sections import Section, Series


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The exploring share of the query after each fit, mean over seeds."""

    series: Series
    labels: list[int]
    exploring: list[float]


def phases_of(section: Section) -> list[Phases]:
    """Of the selectors with a graph; the others have no phases."""
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


def phase_charts(section: Section) -> list[Chart]:
    return [phase_chart(section, phases) for phases in phases_of(section)]


def phase_chart(section: Section, phases: Phases) -> Chart:
    """A bar for each query: exploring from below, refining from above."""
    step = section.beyond - section.labels[-1]
    half = 0.42 * step
    shares = list(zip(phases.labels, phases.exploring, strict=True))
    exploring = [(count - half, 0.0, count + half, share) for count, share in shares]
    refining = [(count - half, share, count + half, 1.0) for count, share in shares]
    return Chart(
        title=f"{section.title}: {phases.series.name}",
        x=label_axis(phases.labels, "labels at the query", margin=step / 2),
        y=number_axis(0.0, 1.0, "share of the query", [0, 0.5, 1]),
        marks=[
            Bars(boxes=exploring, fill="exploring", name="exploring"),
            Bars(boxes=refining, fill="refining", name="refining"),
        ],
        height=180,
    )
