"""The results in sentences."""

from collections.abc import Sequence
from statistics import fmean

from lightning_diffal.studies.report.checkerboard import Board
from lightning_diffal.studies.report.curves import Curve
from lightning_diffal.studies.report.differences import areas, differences_to
from lightning_diffal.studies.report.query_phases import Phases
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.statistics import Interval


def share(value: float) -> str:
    return f"{value:.3f}"


def signed(value: float, digits: int = 3) -> str:
    rounded = f"{abs(value):.{digits}f}"
    return rounded if not float(rounded) else f"{'+' if value > 0 else '−'}{rounded}"


def spelled(interval: Interval, digits: int = 3) -> str:
    """+0.021 (95% CI +0.010 to +0.032, 5 seeds)."""
    mean = signed(interval.mean, digits)
    if interval.half is None:
        return f"{mean} (1 seed, no interval)"
    return f"{mean} (95% CI {signed(interval.low, digits)} to {signed(interval.high, digits)}, {interval.seeds} seeds)"


def ordinal(index: int) -> str:
    ending = "th" if 10 <= index % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(index % 10, "th")
    return f"{index}{ending}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def by_area(section: Section) -> list[tuple[Series, float]]:
    """Best mean accuracy over the rounds first."""
    found = [(one, fmean(areas(one).values())) for one in section.series]
    return sorted(found, key=lambda pair: -pair[1])


def winner(section: Section) -> Series:
    return by_area(section)[0][0]


def overall(sections: Sequence[Section]) -> str:
    """Where diffusion leads, where it does not, and which of these differences are significant."""
    with_diffusion = [section for section in sections if section.named("diffusion") and len(section.series) > 1]
    if not with_diffusion:
        return "These results do not compare diffusion with another selector."
    won = [section for section in with_diffusion if winner(section) is section.named("diffusion")]
    lost = [section for section in with_diffusion if section not in won]
    parts = []
    if won:
        named = [f"{section.title} (next is {by_area(section)[1][0].name}{significance(section)})" for section in won]
        parts.append(f"By mean accuracy over the rounds, diffusion leads in {listed(named)}.")
    if lost:
        named = [f"{section.title} ({winner(section).name} leads{significance(section)})" for section in lost]
        subject = "It" if won else "By mean accuracy over the rounds, diffusion"
        parts.append(f"{subject} does not lead in {listed(named)}.")
    return " ".join(parts)


def significance(section: Section) -> str:
    """A remark where diffusion and the best other selector are equal, or not significantly different."""
    diffusion = section.named("diffusion")
    ranked = by_area(section)
    rival = next(one for one, _ in ranked if one is not diffusion)
    shares = {one.name: share(value) for one, value in ranked}
    if diffusion is None or shares[diffusion.name] == shares[rival.name]:
        return ", equal to three digits" if diffusion else ""
    interval = differences_to(section, rival).get(diffusion.name)
    if interval is None or interval.half is None:
        return ", on one seed" if interval else ", on other seeds"
    return "" if interval.significant else ", not significant"


def verdict(section: Section) -> str:
    """Which selector has the highest mean accuracy over the rounds, diffusion's rank, and the intervals."""
    ranked = by_area(section)
    best, best_area = ranked[0]
    span = (
        f"{section.labels[0]} to {section.labels[-1]} labels"
        if len(section.labels) > 1
        else f"{section.labels[0]} labels"
    )
    seeds = "1 seed" if len(section.seeds) == 1 else f"{len(section.seeds)} seeds"
    parts = [f"{section.title} ({span}, {seeds}):"]
    if len(ranked) == 1:
        return f"{parts[0]} only {best.name}, with a mean accuracy of {share(best_area)} over the rounds."
    diffusion, random = section.named("diffusion"), section.named("random")
    names = [one.name for one, _ in ranked]
    if diffusion is None:
        parts.append(
            f"{best.name} has the highest mean accuracy over the rounds, {share(best_area)}; diffusion was not run."
        )
    elif best is diffusion:
        second, second_area = ranked[1]
        lead = differences_to(section, second).get(diffusion.name)
        parts.append(
            f"diffusion has the highest mean accuracy over the rounds, {share(best_area)}; next is {second.name} with "
            f"{share(second_area)}, {with_interval(lead, 'a lead')}."
        )
    else:
        own = fmean(areas(diffusion).values())
        gap = differences_to(section, best).get(diffusion.name)
        parts.append(
            f"{best.name} has the highest mean accuracy over the rounds, {share(best_area)}. Diffusion is "
            f"{ordinal(names.index(diffusion.name) + 1)} of {len(names)} with {share(own)}, "
            f"{with_interval(gap, 'a difference')}."
        )
    reference = diffusion or best
    mentioned = random in (best, reference) or (best is diffusion and ranked[1][0] is random)
    if random and not mentioned:
        difference = differences_to(section, random).get(reference.name)
        parts.append(f"Compared with random, {reference.name} has {with_interval(difference)}.")
    parts.append(at_the_end(section))
    return " ".join(parts)


def with_interval(interval: Interval | None, noun: str = "") -> str:
    if interval is None:
        return "with no seed in common"
    lead = f"{noun} of " if noun else ""
    if interval.half is None:
        return f"{lead}{spelled(interval)}"
    return f"{lead}{spelled(interval)}{'' if interval.significant else ', not significant'}"


def at_the_end(section: Section) -> str:
    """At 120 labels diffusion has 0.912, the best; random 0.871."""
    last = len(section.labels) - 1
    finals = sorted(((fmean(one.at(last)), one) for one in section.series), key=lambda pair: -pair[0])
    best, first = finals[0][0], finals[0][1]
    sentence = f"At {section.labels[-1]} labels {first.name} has {share(best)}"
    equal = [one.name for value, one in finals[1:] if share(value) == share(best)]
    if equal:
        sentence += f", equal to {listed(equal)}"
    elif len(finals) > 1:
        sentence += ", the best"
    others = [
        (value, one) for value, one in finals[1:] if one.selector in {"diffusion", "random"} and one.name not in equal
    ]
    return sentence + "".join(f"; {one.name} {share(value)}" for value, one in others) + "."


def variance_finding(curves: Sequence[Curve]) -> str:
    """Which selector's accuracy varies least over seeds, on average over the rounds, and diffusion's rank."""
    ranked = sorted(curves, key=lambda curve: fmean(curve.values))
    least = ranked[0]
    sentence = f"On average over the rounds {least.series.name} varies least, {fmean(least.values):.2g}"
    places = {curve.series.selector: index for index, curve in enumerate(ranked, start=1)}
    if "diffusion" in places and places["diffusion"] > 1:
        own = fmean(ranked[places["diffusion"] - 1].values)
        sentence += f"; diffusion is {ordinal(places['diffusion'])} of {len(ranked)} with {own:.2g}"
    elif len(ranked) > 1:
        most = ranked[-1]
        sentence += f"; {most.series.name} varies most, {fmean(most.values):.2g}"
    return sentence + "."


def difference_finding(section: Section, reference: Series) -> str:
    found = differences_to(section, reference)
    if all(interval.half is None for interval in found.values()):
        return "One shared seed: no interval, so significance is unknown."
    ahead = [name for name, interval in found.items() if interval.significant and interval.mean > 0]
    behind = [name for name, interval in found.items() if interval.significant and interval.mean < 0]
    parts = []
    if ahead:
        parts.append(f"Significantly above {reference.name}: {listed(ahead)}.")
    if behind:
        parts.append(
            f"Significantly below: {listed(behind)}."
            if ahead
            else f"Significantly below {reference.name}: {listed(behind)}."
        )
    if not parts:
        parts.append(f"No selector differs significantly from {reference.name}.")
    return " ".join(parts)


def phases_finding(phases: Phases) -> str:
    first, last = phases.exploring[0], phases.exploring[-1]
    sentence = f"With {phases.series.name}, {first:.0%} of the first query explores, and {last:.0%} of the last"
    half = next((count for count, value in zip(phases.labels, phases.exploring, strict=True) if value < 0.5), None)
    return sentence + (f"; from {half} labels on it mostly refines." if half is not None and first >= 0.5 else ".")


def board_finding(boards: Sequence[Board]) -> str:
    """Which selector covers the most squares, and which queries nearest to the borders."""
    known = [board for board in boards if board.median_border_distance is not None]
    if not known:
        return "There was no query."
    total = known[0].squares ** 2
    most, least = max(board.covered for board in known), min(known, key=lambda board: board.covered)
    near = min(known, key=lambda board: board.median_border_distance or 0.0)
    leaders = [board.series.name for board in known if board.covered == most]
    sentence = f"With {listed(leaders)}, {most} of {total} squares have a label"
    if least.covered < most:
        sentence += f", with {least.series.name} only {least.covered}"
    if len(known) > 1:
        distance = f"{near.median_border_distance:.2f} squares away (median)"
        sentence += f"; {near.series.name} queries nearest to the borders, {distance}"
    return sentence + "."


def board_name(board: Board) -> str:
    counts = [f"{board.of_kind(kind)} {kind}" for kind in ("exploring", "refining") if board.of_kind(kind)]
    phases = f" ({', '.join(counts)})" if counts else ""
    queried = f"{board.series.name}, seed {board.run.seed}: {len(board.queried)} points queried{phases}"
    return f"{queried}; labels in {board.covered} of {board.squares**2} squares."
