"""The results in sentences."""

from collections.abc import Sequence

from lightning_diffal.studies.report.sections import Section, Series
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
    """Where diffusion leads, where it does not, and which of these differences are significant."""
    won, lost = [], []
    for section in sections:
        diffusion = section.named("diffusion")
        if diffusion is None or len(section.series) == 1:
            continue
        rival = next(one for one in section.by_area if one is not diffusion)
        remark = significance(section, diffusion, rival)
        if section.by_area[0] is diffusion:
            won.append(f"{section.title} (next is {rival.name}{remark})")
        else:
            lost.append(f"{section.title} ({rival.name} leads{remark})")
    if not won and not lost:
        return "These results do not compare diffusion with another selector."
    parts = []
    if won:
        parts.append(f"By mean accuracy over the rounds, diffusion leads in {listed(won)}.")
    if lost:
        subject = "It" if won else "By mean accuracy over the rounds, diffusion"
        parts.append(f"{subject} does not lead in {listed(lost)}.")
    return " ".join(parts)


def significance(section: Section, diffusion: Series, rival: Series) -> str:
    """A remark where the two are equal, or not significantly different."""
    if share(diffusion.area) == share(rival.area):
        return ", equal to three digits"
    interval = section.differences_to(rival).get(diffusion.name)
    if interval is None:
        return ", on other seeds"
    if interval.half is None:
        return ", on one seed"
    return "" if interval.significant else ", not significant"


def verdict(section: Section) -> str:
    """Which selector has the highest mean accuracy over the rounds, diffusion's rank, and the intervals."""
    ranked, diffusion, random = section.by_area, section.named("diffusion"), section.named("random")
    best = ranked[0]
    first, last = section.labels[0], section.labels[-1]
    span = f"{first} to {last} labels" if len(section.labels) > 1 else f"{first} labels"
    seeds = "1 seed" if len(section.seeds) == 1 else f"{len(section.seeds)} seeds"
    head = f"{section.title} ({span}, {seeds}):"
    if len(ranked) == 1:
        return f"{head} only {best.name}, with a mean accuracy of {share(best.area)} over the rounds."
    leads = f"{head} {best.name} has the highest mean accuracy over the rounds, {share(best.area)}"
    mentioned = [best, diffusion]
    if diffusion is None:
        parts = [f"{leads}; diffusion was not run."]
    elif best is diffusion:
        second = ranked[1]
        mentioned.append(second)
        lead = difference(section, diffusion, second, "a lead of ")
        parts = [f"{leads}; next is {second.name} with {share(second.area)}, {lead}."]
    else:
        rank = f"{ordinal(ranked.index(diffusion) + 1)} of {len(ranked)}"
        gap = difference(section, diffusion, best, "a difference of ")
        parts = [f"{leads}. Diffusion is {rank} with {share(diffusion.area)}, {gap}."]
    if random and random not in mentioned:
        subject = diffusion or best
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
    shown = [one for one in others if one.selector in {"diffusion", "random"} and one.name not in equal]
    return sentence + "".join(f"; {one.name} {share(one.means[-1])}" for one in shown) + "."
