"""The report: one page that needs nothing beside itself, made of result files and nothing else."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lightning_diffal.studies.report.figures import (
    accuracy_figure,
    board_figure,
    difference_figures,
    phases_figure,
    seconds_figure,
    variance_figure,
)
from lightning_diffal.studies.report.look import DARK, LIGHT, PAPER
from lightning_diffal.studies.report.markup import Markup, element, joined
from lightning_diffal.studies.report.sections import Section, sections_of
from lightning_diffal.studies.report.tables import area_table, labels_table, settings_list, targets_of
from lightning_diffal.studies.report.words import overall, verdict
from lightning_diffal.studies.results import read_results

HERE = Path(__file__).parent
HOW_COMPARED = (
    "Differences are taken seed by seed, over the seeds both selectors have, and averaged; brackets hold the 95% "
    "Student-t interval of that mean, not corrected for the number of comparisons. Runs of a seed have the same "
    "settings and, as was checked here, the same first labels."
)
HOW_CENSORED = (
    "A run needs as many labels as the first fit that comes to the target was trained on; a negative difference is a "
    "saving. A run that never gets there counts as needing one query more than there were, so its means are bounds "
    "(“at least”, “at most”) and get no interval; where both sides miss, nothing is said."
)


def report_on(results: Path, out: Path | None = None) -> Path:
    """Write report.html and a PNG of each figure, by default into `results`/report; the path of the page.

    Same results, same bytes. Without matplotlib there is the page alone, and a warning.
    """
    if not results.is_dir():
        raise FileNotFoundError(f"{results}: there is no such folder. `lightning-diffal run` makes one.")
    found = read_results(results)
    if not found:
        raise ValueError(
            f"{results}: no results here. `lightning-diffal run` writes them as STUDY/SELECTOR-SEED-KEY.json."
        )
    sections = sections_of(found)
    folder = results / "report" if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    path.write_text(page(sections), encoding="utf-8")
    if find_spec("matplotlib") is None:
        warnings.warn("The PNGs of the report need matplotlib: `pip install lightning-diffal[plot]`.", stacklevel=2)
        return path
    from lightning_diffal.studies.report.pictures import draw_pictures  # noqa: PLC0415, an extra

    for section in sections:
        draw_pictures(section, folder)
    return path


def page(sections: Sequence[Section]) -> str:
    most = max(len(section.series) for section in sections)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Active learning: which selector needs the fewest labels"),
        element("style", Markup(colours() + (HERE / "page.css").read_text(encoding="utf-8") + switch_rules(most))),
    )
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        top(sections),
        element("main", *(study(section) for section in sections), id="results"),
        element(
            "footer",
            element("p", "Made by lightning-diffal from result files alone: ", code("lightning-diffal report DIR")),
        ),
        element("script", Markup((HERE / "board.js").read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def top(sections: Sequence[Section]) -> Markup:
    links = [element("li", element("a", section.title, href=f"#{section.slug}")) for section in sections]
    return element(
        "header",
        element("h1", "Which selector needs the fewest labels"),
        element("p", overall(sections), class_="lead"),
        element("ul", *(element("li", verdict(section)) for section in sections), class_="verdicts"),
        element("nav", element("ul", *links), aria_label="Studies"),
    )


def study(section: Section) -> Markup:
    notices = [element("p", notice, class_="notice") for notice in section.notices]
    return element(
        "section",
        element("h2", section.title, id=f"{section.slug}-title"),
        element("p", runs_in_words(section), class_="soft"),
        *notices,
        accuracy_figure(section),
        board_figure(section),
        comparison(section),
        element("div", variance_figure(section), phases_figure(section), class_="pair"),
        seconds_figure(section),
        how_made(section),
        id=section.slug,
        aria_labelledby=f"{section.slug}-title",
    )


def comparison(section: Section) -> Markup:
    tables = [labels_table(section, target, why) for target, why in targets_of(section)]
    told = HOW_CENSORED if tables else "Every run comes to 90% of the best final accuracy with its first labels."
    return joined(
        difference_figures(section),
        element(
            "div",
            element("h3", "Area under the curve, and labels needed"),
            element("p", HOW_COMPARED, class_="soft"),
            area_table(section),
            element("p", told, class_="soft"),
            *tables,
            class_="tables",
        ),
    )


def runs_in_words(section: Section) -> str:
    seconds = sum(sum(step.seconds.values()) for run in section.results for step in run.rounds)
    runs, rounds = len(section.results), len(section.labels)
    seeds = ", ".join(map(str, section.seeds))
    return (
        f"{len(section.series)} selectors, {runs} runs of {rounds} {'round' if rounds == 1 else 'rounds'}, "
        f"{'seed' if len(section.seeds) == 1 else 'seeds'} {seeds}; {duration(seconds)} of computing in all, "
        f"{duration(seconds / runs)} a run."
    )


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"


def how_made(section: Section) -> Markup:
    versions = sorted({f"{name} {version}" for run in section.results for name, version in run.versions.items()})
    own = [
        f"{one.name}: {one.runs[one.seeds[0]].settings['selector']}"
        for one in section.series
        if has_own(section, one.name)
    ]
    options = element(
        "p", "Numbers below that are not the study’s own are given as options, as --pool N.", class_="soft"
    )
    parts = [element("pre", code(command(section))), options, settings_list(section)]
    if own:
        parts.append(element("ul", *(element("li", words) for words in own), class_="soft"))
    if versions:
        parts.append(element("p", f"Versions: {', '.join(versions)}.", class_="soft"))
    return element("details", element("summary", "Command, settings, versions"), *parts)


def has_own(section: Section, name: str) -> bool:
    return any(one.name == name and "selector" in one.runs[one.seeds[0]].settings for one in section.series)


def command(section: Section) -> str:
    """What makes these runs with the settings of the study; `--data` for those that read data."""
    selectors = " ".join(f"--selector {name}" for name in dict.fromkeys(one.selector for one in section.series))
    dataset = str(section.settings.get("dataset", ""))
    # A study on other data than its own is named after both.
    study = section.study.removesuffix(f"-{dataset}")
    other = f" --dataset {dataset}" if study != section.study else ""
    data = "" if section.study == "checkerboard" else " --data DIR"
    return f"lightning-diffal run {study} {selectors} --seeds {max(section.seeds) + 1}{other}{data}"


def code(words: str) -> Markup:
    return element("code", words)


def colours() -> str:
    light = {**LIGHT, "paper": PAPER["light"], "text": "#1c1e21", "soft": "#595f66", "rule": "#e3e5e8"}
    light |= {
        "rule-strong": "#9aa0a6",
        "link": "#005a8f",
        "tint": "#f0f1f3",
        "light-bar": "#f0c27a",
        "stage-fit": "#c9cdd2",
    }
    dark = {**DARK, "paper": PAPER["dark"], "text": "#e8eaed", "soft": "#a5abb3", "rule": "#2d3136"}
    dark |= {
        "rule-strong": "#6b727a",
        "link": "#7cc4f5",
        "tint": "#212429",
        "light-bar": "#c98f3c",
        "stage-fit": "#4a5058",
    }
    hues = "".join(f".hue-{name}{{color:var(--{name})}}" for name in LIGHT)
    return f":root{{{variables(light)}}}@media (prefers-color-scheme: dark){{:root{{{variables(dark)}}}}}{hues}\n"


def variables(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def switch_rules(most: int) -> str:
    """Unticking a selector hides it in every figure of its section, without a script."""
    return "".join(f"section:has(.show-{place}:not(:checked)) .series-{place}{{display:none}}" for place in range(most))
