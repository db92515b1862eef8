"""Which results are compared: those of one study with the same settings and the same label counts."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_diffal.studies.report.style import Style, rank, style_of
from lightning_diffal.studies.results import Result

TITLES = {
    "checkerboard": "Checkerboard",
    "mnist-fc": "MNIST, fully connected",
    "mnist-conv": "MNIST, convolutional",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "digits": "Digits",
}
OWN = "selector"
"""The one setting that may differ between compared runs: the selector and its parameters."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The runs of one selector, by seed."""

    selector: str
    name: str
    """The selector, with its parameters where it was run with several."""
    runs: dict[int, Result]

    @property
    def seeds(self) -> list[int]:
        return sorted(self.runs)

    @property
    def style(self) -> Style:
        return style_of(self.selector, self.name)

    def accuracies(self, seed: int) -> list[float]:
        return [step.accuracy for step in self.runs[seed].rounds]

    def at(self, index: int) -> list[float]:
        """The accuracy of every seed in one round."""
        return [self.runs[seed].rounds[index].accuracy for seed in self.seeds]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One study with one set of settings, the same label counts in every run; a section of the page."""

    study: str
    slug: str
    title: str
    settings: dict[str, Any]
    labels: list[int]
    series: list[Series]
    notices: list[str]

    def named(self, selector: str) -> Series | None:
        """The series of a selector; of several, the one with the most seeds."""
        found = [one for one in self.series if one.selector == selector]
        return max(found, key=lambda one: len(one.runs)) if found else None

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for one in self.series for seed in one.runs})

    @property
    def results(self) -> list[Result]:
        return [one.runs[seed] for one in self.series for seed in one.seeds]

    @property
    def beyond(self) -> int:
        """A lower bound on the labels that a run which misses a target would need: one more query."""
        step = self.labels[-1] - self.labels[-2] if len(self.labels) > 1 else int(self.settings.get("query_size", 1))
        return self.labels[-1] + step


def sections_of(results: Sequence[Result]) -> list[Section]:
    """The known studies first, in the order of the paper; within one, the settings with the most runs."""
    studies: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        check_result(result)
        studies[result.study][canonical(shared_settings(result))].append(result)
    order = [study for study in TITLES if study in studies] + sorted(studies.keys() - TITLES.keys())
    sections: list[Section] = []
    for study in order:
        groups = sorted(studies[study].items(), key=lambda item: (-len(item[1]), item[0]))
        differing = differing_settings([shared_settings(runs[0]) for _, runs in groups])
        for _, runs in groups:
            settings = shared_settings(runs[0])
            title = title_of(study, {name: settings.get(name) for name in differing})
            slug = free_slug(study, {section.slug for section in sections})
            section = section_of(study, slug, title, settings, runs)
            sections.extend([section] if section else [])
    if not sections:
        raise ValueError(f"None of the {len(results)} results has a round.")
    return sections


def section_of(study: str, slug: str, title: str, settings: dict[str, Any], runs: list[Result]) -> Section | None:
    grids = Counter(tuple(step.labels for step in run.rounds) for run in runs if run.rounds)
    if not grids:
        return None
    labels = max(grids, key=lambda grid: (grids[grid], len(grid), grid))
    kept = [run for run in runs if tuple(step.labels for step in run.rounds) == labels]
    notices = [
        f"Left out: {run.selector} with seed {run.seed}, which has {described(run)}; the others have "
        f"{len(labels)} from {labels[0]} to {labels[-1]} labels."
        for run in runs
        if tuple(step.labels for step in run.rounds) != labels
    ]
    series = series_of(kept)
    all_seeds = {seed for one in series for seed in one.runs}
    notices += [
        f"{one.name} lacks {plural('seed', sorted(all_seeds - one.runs.keys()))}: its mean is over fewer seeds, "
        "and its paired differences are over the shared ones."
        for one in series
        if all_seeds - one.runs.keys()
    ]
    unequal = [
        seed for seed in sorted(all_seeds) if len({tuple(sorted(run.initial)) for run in kept if run.seed == seed}) > 1
    ]
    if unequal:
        raise ValueError(f"{study}: the runs of {plural('seed', unequal)} do not have the same initial labels.")
    versions: dict[str, set[str]] = defaultdict(set)
    for run in kept:
        for name, version in run.versions.items():
            versions[name].add(version)
    notices += [
        f"The runs used {name} {' and '.join(sorted(found))}."
        for name, found in sorted(versions.items())
        if len(found) > 1
    ]
    return Section(
        study=study,
        slug=slug,
        title=title,
        settings=settings,
        labels=list(labels),
        series=series,
        notices=notices,
    )


def series_of(runs: Iterable[Result]) -> list[Series]:
    """One for each selector and each set of its parameters, in the order of `style.STYLES`."""
    found: dict[tuple[str, str], dict[int, Result]] = defaultdict(dict)
    for run in runs:
        seeds = found[run.selector, canonical(run.settings.get(OWN))]
        if run.seed in seeds:
            raise ValueError(f"{run.study}: {run.selector} with seed {run.seed} occurs twice with the same settings.")
        seeds[run.seed] = run
    variants = Counter(selector for selector, _ in found)
    series = [
        Series(selector=selector, name=selector if variants[selector] == 1 else f"{selector} {own}", runs=seeds)
        for (selector, own), seeds in found.items()
    ]
    return sorted(series, key=lambda one: (rank(one.selector), one.name))


def check_result(result: Result) -> None:
    for index, step in enumerate(result.rounds, start=1):
        if not (math.isfinite(step.accuracy) and 0 <= step.accuracy <= 1):
            raise ValueError(f"{result.path}: round {index} has accuracy {step.accuracy}, outside [0, 1].")
        if len(step.asked) != len(step.reached):
            raise ValueError(
                f"{result.path}: round {index} queries {len(step.asked)} points, but reached has {len(step.reached)}."
            )


def shared_settings(result: Result) -> dict[str, Any]:
    return {name: value for name, value in result.settings.items() if name != OWN}


def canonical(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def differing_settings(groups: Sequence[dict[str, Any]]) -> list[str]:
    names = sorted({name for settings in groups for name in settings})
    return [name for name in names if len({canonical(settings.get(name)) for settings in groups}) > 1]


def title_of(study: str, differing: dict[str, Any]) -> str:
    title = TITLES.get(study, study)
    shown = [f"{name.replace('_', ' ')} {canonical(value)}" for name, value in differing.items()]
    return f"{title} ({', '.join(shown[:3])}{', …' if len(shown) > 3 else ''})" if shown else title


def free_slug(study: str, taken: set[str]) -> str:
    slug = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-") or "study"
    number = 1
    while (candidate := slug if number == 1 else f"{slug}-{number}") in taken:
        number += 1
    return candidate


def described(run: Result) -> str:
    if not run.rounds:
        return "no rounds"
    return f"{len(run.rounds)} from {run.rounds[0].labels} to {run.rounds[-1].labels} labels"


def plural(word: str, values: Sequence[int]) -> str:
    return f"{word if len(values) == 1 else word + 's'} {', '.join(map(str, values))}"
