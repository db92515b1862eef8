"""What the numbers say, in sentences."""

from collections.abc import Sequence
from statistics import fmean

from lightning_diffal.studies.report.bars import Phases
from lightning_diffal.studies.report.board import Board
from lightning_diffal.studies.report.curves import Curve
from lightning_diffal.studies.report.differences import areas, differences_to
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.statistics import Interval


def share(value: float) -> str:
    return f"{value:.3f}"


def signed(value: float, digits: int = 3) -> str:
    rounded = f"{abs(value):.{digits}f}"
    return rounded if not float(rounded) else f"{'+' if value > 0 else '−'}{rounded}"


def spelled(interval: Interval, digits: int = 3) -> str:
    """+0.021 (95% +0.010 to +0.032, 5 seeds)."""
    mean = signed(interval.mean, digits)
    if interval.half is None:
        return f"{mean} (1 seed, no interval)"
    return f"{mean} (95% {signed(interval.low, digits)} to {signed(interval.high, digits)}, {interval.seeds} seeds)"


def ordinal(place: int) -> str:
    ending = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def by_area(section: Section) -> list[tuple[Series, float]]:
    """Best mean accuracy over the rounds first."""
    found = [(one, fmean(areas(one).values())) for one in section.series]
    return sorted(found, key=lambda pair: -pair[1])


def winner(section: Section) -> Series:
    return by_area(section)[0][0]


def overall(sections: Sequence[Section]) -> str:
    """Where diffusion wins and where it does not, and where the seeds are too few to say."""
    with_diffusion = [section for section in sections if section.named("diffusion") and len(section.series) > 1]
    if not with_diffusion:
        return "There is no comparison with diffusion in these results."
    won = [section for section in with_diffusion if winner(section) is section.named("diffusion")]
    lost = [section for section in with_diffusion if section not in won]
    parts = []
    if won:
        told = [f"{section.title} (next is {by_area(section)[1][0].name}{doubt(section)})" for section in won]
        parts.append(f"By mean accuracy over the rounds, diffusion leads in {listed(told)}.")
    if lost:
        told = [f"{section.title} ({winner(section).name} leads{doubt(section)})" for section in lost]
        subject = "It" if won else "By mean accuracy over the rounds, diffusion"
        parts.append(f"{subject} does not lead in {listed(told)}.")
    return " ".join(parts)


def doubt(section: Section) -> str:
    """What to add where diffusion and the best other selector are level, or may differ by chance."""
    diffusion = section.named("diffusion")
    ranked = by_area(section)
    rival = next(one for one, _ in ranked if one is not diffusion)
    shares = {one.name: share(value) for one, value in ranked}
    if diffusion is None or shares[diffusion.name] == shares[rival.name]:
        return ", level with diffusion to three digits" if diffusion else ""
    interval = differences_to(section, rival).get(diffusion.name)
    if interval is None or interval.half is None:
        return ", on one seed" if interval else ", on other seeds"
    return "" if interval.sure else ", by no more than chance may do"


def verdict(section: Section) -> str:
    """Who wins this study by mean accuracy over the rounds, where diffusion stands, and how sure that is."""
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
        return f"{parts[0]} only {best.name}, {share(best_area)} on average over the rounds; nothing to compare with."
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
            f"{share(second_area)}, {judged(lead, 'a lead')}."
        )
    else:
        own = fmean(areas(diffusion).values())
        gap = differences_to(section, best).get(diffusion.name)
        parts.append(
            f"{best.name} has the highest mean accuracy over the rounds, {share(best_area)}. Diffusion is "
            f"{ordinal(names.index(diffusion.name) + 1)} of {len(names)} with {share(own)}, "
            f"{judged(gap, 'a difference')}."
        )
    reference = diffusion or best
    told_already = random in (best, reference) or (best is diffusion and ranked[1][0] is random)
    if random and not told_already:
        apart = differences_to(section, random).get(reference.name)
        parts.append(f"Against random, {reference.name} has {judged(apart)}.")
    parts.append(at_the_end(section))
    return " ".join(parts)


def judged(interval: Interval | None, noun: str = "") -> str:
    if interval is None:
        return "with no seed in common"
    lead = f"{noun} of " if noun else ""
    if interval.half is None:
        return f"{lead}{spelled(interval)}"
    return f"{lead}{spelled(interval)}{'' if interval.sure else ', which these seeds do not tell from zero'}"


def at_the_end(section: Section) -> str:
    """At 120 labels diffusion has 0.912, the best; random 0.871."""
    last = len(section.labels) - 1
    finals = sorted(((fmean(one.at(last)), one) for one in section.series), key=lambda pair: -pair[0])
    best, first = finals[0][0], finals[0][1]
    said = f"At {section.labels[-1]} labels {first.name} has {share(best)}"
    level = [one.name for value, one in finals[1:] if share(value) == share(best)]
    if level:
        said += f", level with {listed(level)}"
    elif len(finals) > 1:
        said += ", the best"
    others = [
        (value, one) for value, one in finals[1:] if one.selector in {"diffusion", "random"} and one.name not in level
    ]
    return said + "".join(f"; {one.name} {share(value)}" for value, one in others) + "."


def variance_finding(curves: Sequence[Curve]) -> str:
    """Whose accuracy varies least over seeds, on average over the rounds, and where diffusion stands."""
    ranked = sorted(curves, key=lambda curve: fmean(curve.values))
    least = ranked[0]
    said = f"On average over the rounds {least.series.name} varies least, {fmean(least.values):.2g}"
    places = {curve.series.selector: place for place, curve in enumerate(ranked, start=1)}
    if "diffusion" in places and places["diffusion"] > 1:
        own = fmean(ranked[places["diffusion"] - 1].values)
        said += f"; diffusion is {ordinal(places['diffusion'])} of {len(ranked)} with {own:.2g}"
    elif len(ranked) > 1:
        most = ranked[-1]
        said += f"; {most.series.name} varies most, {fmean(most.values):.2g}"
    return said + "."


def difference_finding(section: Section, reference: Series) -> str:
    found = differences_to(section, reference)
    if all(interval.half is None for interval in found.values()):
        return "One seed in common: no interval, and no telling what is chance."
    ahead = [name for name, interval in found.items() if interval.sure and interval.mean > 0]
    behind = [name for name, interval in found.items() if interval.sure and interval.mean < 0]
    parts = []
    if ahead:
        parts.append(f"Above {reference.name} with an interval clear of zero: {listed(ahead)}.")
    if behind:
        parts.append(
            f"Below it: {listed(behind)}." if ahead else f"Below {reference.name}, clear of zero: {listed(behind)}."
        )
    if not parts:
        parts.append(f"No selector differs from {reference.name} by more than these seeds could by chance.")
    return " ".join(parts)


def phases_finding(phases: Phases) -> str:
    first, last = phases.exploring[0], phases.exploring[-1]
    said = f"With {phases.series.name} {first:.0%} of the first query explores, {last:.0%} of the last"
    half = next((count for count, value in zip(phases.labels, phases.exploring, strict=True) if value < 0.5), None)
    return said + (f"; from {half} labels on it mostly refines." if half is not None and first >= 0.5 else ".")


def board_finding(boards: Sequence[Board]) -> str:
    """Who covers most squares, and who asks nearest to the borders."""
    known = [board for board in boards if board.off_border is not None]
    if not known:
        return "Nothing was asked."
    total = known[0].squares ** 2
    most, least = max(board.covered for board in known), min(known, key=lambda board: board.covered)
    near = min(known, key=lambda board: board.off_border or 0.0)
    leaders = [board.series.name for board in known if board.covered == most]
    said = f"With {listed(leaders)}, labels lie in {most} of {total} squares"
    if least.covered < most:
        said += f", with {least.series.name} in only {least.covered}"
    if len(known) > 1:
        said += (
            f"; {near.series.name} asks nearest to the borders, at a median distance of {near.off_border:.2f} squares"
        )
    return said + "."


def board_name(board: Board) -> str:
    counts = [f"{board.of_kind(kind)} {kind}" for kind in ("exploring", "refining") if board.of_kind(kind)]
    told = f" ({', '.join(counts)})" if counts else ""
    asked = f"{board.series.name}, seed {board.run.seed}: {len(board.queried)} points asked{told}"
    return f"{asked}; labels in {board.covered} of {board.squares**2} squares."
