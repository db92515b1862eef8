"""Which results are compared: those of one study with the same settings and the same label counts."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from lightning_diffal.studies.report.series import OWN_SETTINGS, Series, canonical, parameters_of, series_of
from lightning_diffal.studies.report.statistics import Interval, paired_difference
from lightning_diffal.studies.results import Result

TITLES = {
    "checkerboard": "Checkerboard",
    "mnist-fc": "MNIST, fully connected",
    "mnist-conv": "MNIST, convolutional",
    "mnist-lt": "MNIST, long-tailed",
    "cifar10": "CIFAR-10",
    "cifar10-efficientnet": "CIFAR-10, EfficientNet features",
    "svhn": "SVHN",
    "digits": "Digits",
}


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
        """The series of a selector, without learning from the graph if there is one; of several, with most seeds."""
        found = [one for one in self.series if one.selector == selector]
        return max(found, key=lambda one: (one.plain, len(one.runs))) if found else None

    @property
    def ours(self) -> Series | None:
        """The selector that the sentences are about: coverage, or the paper's."""
        return self.named("coverage") or self.named("diffusion")

    @property
    def references(self) -> list[Series]:
        """The selectors that the others are compared with, where they were run."""
        return [one for one in (self.named("random"), self.named("diffusion"), self.named("coverage")) if one]

    def differences_to(self, reference: Series) -> dict[str, Interval]:
        """The area of every other selector with a seed in common minus that of the reference, the best first."""
        found = {one.name: paired_difference(one.areas, reference.areas) for one in self.series if one is not reference}
        known = {name: interval for name, interval in found.items() if interval is not None}
        return dict(sorted(known.items(), key=lambda item: -item[1].mean))

    @property
    def by_area(self) -> list[Series]:
        """The best mean accuracy over the rounds first."""
        return sorted(self.series, key=lambda one: -one.area)

    @property
    def by_final_accuracy(self) -> list[Series]:
        """The best mean accuracy of the last round first."""
        return sorted(self.series, key=lambda one: -one.means[-1])

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for one in self.series for seed in one.runs})

    @property
    def results(self) -> list[Result]:
        return [one.runs[seed] for one in self.series for seed in one.seeds]

    @property
    def seconds(self) -> float:
        return sum(sum(step.seconds.values()) for run in self.results for step in run.rounds)

    @property
    def parameters(self) -> dict[str, str]:
        """Of each selector, where its results name them."""
        own = {one.name: parameters_of(one.runs[one.seeds[0]]) for one in self.series}
        return {name: parameters for name, parameters in own.items() if parameters}

    @property
    def versions(self) -> list[str]:
        return sorted({f"{name} {version}" for run in self.results for name, version in run.versions.items()})

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
    sections: list[Section] = []
    for study in [study for study in TITLES if study in studies] + sorted(studies.keys() - TITLES.keys()):
        groups = [runs for _, runs in sorted(studies[study].items(), key=lambda item: (-len(item[1]), item[0]))]
        differing = differing_settings([shared_settings(runs[0]) for runs in groups])
        for runs in groups:
            if any(run.rounds for run in runs):
                slug = free_slug(study, {section.slug for section in sections})
                sections.append(section_of(runs, slug, differing))
    if not sections:
        raise ValueError(f"None of the {len(results)} results has a round.")
    return sections


def section_of(runs: list[Result], slug: str, differing: Sequence[str]) -> Section:
    """The runs with the most frequent label counts; the notices name the others.

    Args:
        runs: Runs of one study with the same settings, at least one of them with a round.
        differing: Settings in which the sections of the study differ, for the title.
    """
    study, settings = runs[0].study, shared_settings(runs[0])
    grids = Counter(labels_of(run) for run in runs if run.rounds)
    labels = max(grids, key=lambda grid: (grids[grid], len(grid), grid))
    kept = [run for run in runs if labels_of(run) == labels]
    series = series_of(kept)
    seeds = {run.seed for run in kept}
    unequal = [seed for seed in sorted(seeds) if len({frozenset(run.initial) for run in kept if run.seed == seed}) > 1]
    if unequal:
        raise ValueError(f"{study}: the runs of {plural('seed', unequal)} do not have the same initial labels.")
    versions: dict[str, set[str]] = defaultdict(set)
    for run in kept:
        for name, version in run.versions.items():
            versions[name].add(version)
    notices = [
        f"Left out: {run.selector} with seed {run.seed}, which has {described(labels_of(run))}; the others have "
        f"{described(labels)}."
        for run in runs
        if labels_of(run) != labels
    ]
    notices += [
        f"{one.name} lacks {plural('seed', sorted(seeds - one.runs.keys()))}: its mean is over fewer seeds, "
        "and its paired differences are over the shared ones."
        for one in series
        if seeds - one.runs.keys()
    ]
    notices += [
        f"The runs used {name} {' and '.join(sorted(found))}."
        for name, found in sorted(versions.items())
        if len(found) > 1
    ]
    return Section(
        study=study,
        slug=slug,
        title=title_of(study, {name: settings.get(name) for name in differing}),
        settings=settings,
        labels=list(labels),
        series=series,
        notices=notices,
    )


def check_result(result: Result) -> None:
    for index, step in enumerate(result.rounds, start=1):
        if not 0 <= step.accuracy <= 1:  # nor NaN
            raise ValueError(f"{result.path}: round {index} has accuracy {step.accuracy}, outside [0, 1].")
        if len(step.asked) != len(step.reached):
            raise ValueError(
                f"{result.path}: round {index} queries {len(step.asked)} points, but reached has {len(step.reached)}."
            )


def shared_settings(result: Result) -> dict[str, Any]:
    return {name: value for name, value in result.settings.items() if name not in OWN_SETTINGS}


def differing_settings(groups: Sequence[dict[str, Any]]) -> list[str]:
    names = sorted({name for settings in groups for name in settings})
    return [name for name in names if len({canonical(settings.get(name)) for settings in groups}) > 1]


def title_of(study: str, differing: dict[str, Any]) -> str:
    title = TITLES.get(study, study)
    shown = [f"{name.replace('_', ' ')} {canonical(value)}" for name, value in differing.items()]
    return f"{title} ({', '.join(shown[:3])}{', …' if len(shown) > 3 else ''})" if shown else title


def free_slug(study: str, taken: set[str]) -> str:
    slug = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-") or "study"
    return next(name for number in count(1) if (name := slug if number == 1 else f"{slug}-{number}") not in taken)


def labels_of(run: Result) -> tuple[int, ...]:
    return tuple(step.labels for step in run.rounds)


def described(labels: Sequence[int]) -> str:
    return f"{len(labels)} from {labels[0]} to {labels[-1]} labels" if labels else "no rounds"


def plural(word: str, values: Sequence[int]) -> str:
    return f"{word if len(values) == 1 else word + 's'} {', '.join(map(str, values))}"
