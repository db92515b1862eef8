"""The results in sentences."""

from collections.abc import Sequence

from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series
from lightning_diffal.studies.report.statistics import Interval


def share(value: float) -> str:
    return f"{value:.3f}"


def signed(value: float, digits: int = 3) -> str:
    rounded = f"{abs(value):.{digits}f}"
    return rounded if not float(rounded) else f"{'+' if value > 0 else '−'}{rounded}"


def spelled(interval: Interval) -> str:
    """+0.021 (95% CI +0.010 to +0.032, 5 seeds)."""
    if interval.half is None:
        return f"{signed(interval.mean)} (1 seed, no interval)"
    words = f"95% CI {signed(interval.low)} to {signed(interval.high)}, {interval.seeds} seeds"
    return f"{signed(interval.mean)} ({words}){'' if interval.significant else ', not significant'}"


def ordinal(index: int) -> str:
    ending = "th" if 10 <= index % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(index % 10, "th")
    return f"{index}{ending}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def overall(sections: Sequence[Section]) -> str:
    """Where our selector leads, where it does not, and which of these differences are significant."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for section in sections:
        ours = section.ours
        # Training on more than the labels is no merit of a selector: compared are series that do so, or do not, alike.
        ranked = [one for one in section.by_area if ours and one.plain is ours.plain]
        if ours is None or len(ranked) == 1:
            continue
        won, lost = found.setdefault(ours.selector, ([], []))
        rival = next(one for one in ranked if one is not ours)
        remark = significance(section, ours, rival)
        if ranked[0] is ours:
            won.append(f"{section.title} (next is {rival.name}{remark})")
        else:
            lost.append(f"{section.title} ({rival.name} leads{remark})")
    if not found:
        return "These results compare neither coverage nor diffusion with another selector."
    parts = []
    for selector, (won, lost) in found.items():
        if won:
            parts.append(f"By mean accuracy over the rounds, {selector} leads in {listed(won)}.")
        if lost:
            subject = "It" if won else f"By mean accuracy over the rounds, {selector}"
            parts.append(f"{subject} does not lead in {listed(lost)}.")
    return " ".join(parts)


def significance(section: Section, ours: Series, rival: Series) -> str:
    """A remark where the two are equal, or not significantly different."""
    if share(ours.area) == share(rival.area):
        return ", equal to three digits"
    interval = section.differences_to(rival).get(ours.name)
    if interval is None:
        return ", on other seeds"
    if interval.half is None:
        return ", on one seed"
    return "" if interval.significant else ", not significant"


def verdict(section: Section) -> str:
    """Which selector has the highest mean accuracy over the rounds, the rank of ours, and the intervals."""
    ranked, ours, random = section.by_area, section.ours, section.named("random")
    best = ranked[0]
    first, last = section.labels[0], section.labels[-1]
    span = f"{first} to {last} labels" if len(section.labels) > 1 else f"{first} labels"
    seeds = "1 seed" if len(section.seeds) == 1 else f"{len(section.seeds)} seeds"
    head = f"{section.title} ({span}, {seeds}):"
    if len(ranked) == 1:
        return f"{head} only {best.name}, with a mean accuracy of {share(best.area)} over the rounds."
    leads = f"{head} {best.name} has the highest mean accuracy over the rounds, {share(best.area)}"
    mentioned = [best, ours]
    if ours is None:
        parts = [f"{leads}; diffusion was not run."]
    elif best is ours:
        second = ranked[1]
        mentioned.append(second)
        lead = difference(section, ours, second, "a lead of ")
        parts = [f"{leads}; next is {second.name} with {share(second.area)}, {lead}."]
    else:
        rank = f"{ordinal(ranked.index(ours) + 1)} of {len(ranked)}"
        gap = difference(section, ours, best, "a difference of ")
        parts = [f"{leads}. {ours.name.capitalize()} is {rank} with {share(ours.area)}, {gap}."]
    if random and random not in mentioned:
        subject = ours or best
        parts.append(f"Compared with random, {subject.name} has {difference(section, subject, random)}.")
    return " ".join([*parts, final_ranking(section)])


def difference(section: Section, one: Series, reference: Series, noun: str = "") -> str:
    interval = section.differences_to(reference).get(one.name)
    return "with no seed in common" if interval is None else f"{noun}{spelled(interval)}"


def final_ranking(section: Section) -> str:
    """At 120 labels diffusion has 0.912, the best; random 0.871."""
    best, *others = section.by_final_accuracy
    accuracy = share(best.means[-1])
    sentence = f"At {section.labels[-1]} labels {best.name} has {accuracy}"
    equal = [one.name for one in others if share(one.means[-1]) == accuracy]
    if equal:
        sentence += f", equal to {listed(equal)}"
    elif others:
        sentence += ", the best"
    shown = [one for one in others if one in section.references and one.name not in equal]
    return sentence + "".join(f"; {one.name} {share(one.means[-1])}" for one in shown) + "."
