"""The runs that one line of a figure and one row of a table show."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lightning_diffal.report.style import Style, rank, style_of
from lightning_diffal.studies.results import LEARNING, Result

OWN = "selector"
"""The selector and its parameters."""
OWN_SETTINGS = {OWN, "graph_features", "learn_from_graph"}
"""The settings that may differ between compared runs."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The runs of one selector, by seed."""

    selector: str
    name: str
    """The selector, whether fits learned from the graph, and the parameters where it was run with several."""
    runs: dict[int, Result]

    @property
    def seeds(self) -> list[int]:
        return sorted(self.runs)

    @property
    def plain(self) -> bool:
        return LEARNING not in self.name

    @property
    def style(self) -> Style:
        return style_of(self.selector, self.name)

    @property
    def accuracies(self) -> dict[int, list[float]]:
        """The accuracy in each round, by seed."""
        return {seed: [step.accuracy for step in self.runs[seed].rounds] for seed in self.seeds}

    @property
    def by_round(self) -> list[tuple[float, ...]]:
        """The accuracies of all seeds, for each round."""
        return list(zip(*self.accuracies.values(), strict=True))

    @property
    def means(self) -> list[float]:
        """Mean accuracy over the seeds in each round."""
        return [fmean(values) for values in self.by_round]

    @property
    def areas(self) -> dict[int, float]:
        """Area under the curve of accuracy against labels, as the mean accuracy over the rounds, by seed."""
        return {seed: fmean(accuracies) for seed, accuracies in self.accuracies.items()}

    @property
    def area(self) -> float:
        return fmean(self.areas.values())


def series_of(runs: Iterable[Result]) -> list[Series]:
    """One for each selector and each set of its parameters, in the order of `style.STYLES`."""
    found: dict[tuple[str, str, str], dict[int, Result]] = defaultdict(dict)
    for run in runs:
        seeds = found[run.selector, run.series, parameters_of(run)]
        if run.seed in seeds:
            raise ValueError(f"{run.study}: {run.series} with seed {run.seed} occurs twice with the same settings.")
        seeds[run.seed] = run
    variants = Counter(name for _, name, _ in found)
    series = [
        Series(selector=selector, name=name if variants[name] == 1 else f"{name} {own}", runs=seeds)
        for (selector, name, own), seeds in found.items()
    ]
    return sorted(series, key=lambda one: (rank(one.selector), one.name))


def parameters_of(run: Result) -> str:
    """The selector's parameters, and the fixed features it was given."""
    own, features = canonical(run.settings.get(OWN, "")), run.settings.get("graph_features")
    return own if features is None else f"{own} on {features}"


def canonical(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
