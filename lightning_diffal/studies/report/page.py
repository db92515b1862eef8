"""The report: one self-contained HTML page, and a PNG of each figure, from result files alone."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lightning_diffal.studies.report.captions import overall, verdict
from lightning_diffal.studies.report.checkerboard import board_charts
from lightning_diffal.studies.report.curves import accuracy_charts, variance_charts
from lightning_diffal.studies.report.figures import (
    accuracy_figure,
    board_figure,
    difference_figures,
    phases_figure,
    seconds_figure,
    variance_figure,
)
from lightning_diffal.studies.report.markup import Markup, element, joined
from lightning_diffal.studies.report.query_phases import phase_charts
from lightning_diffal.studies.report.sections import Section, sections_of
from lightning_diffal.studies.report.style import DARK, DARK_PAGE, FILLS, LIGHT, LIGHT_PAGE
from lightning_diffal.studies.report.tables import area_table, labels_table, settings_list, targets_of
from lightning_diffal.studies.report.timings import timing_charts
from lightning_diffal.studies.results import read_results

HERE = Path(__file__).parent
HOW_COMPARED = (
    "Differences are paired by seed, over the seeds both selectors have, and averaged; brackets hold the 95% Student-t "
    "confidence interval, not corrected for multiple comparisons. Runs of a seed have the same settings and the same "
    "initial labels."
)
HOW_CENSORED = (
    "A run needs the labels of its first fit that reaches the target; negative differences are savings. A run that "
    "never reaches it counts as needing one more query, so the mean is a bound (“at least”, “at most”) without an "
    "interval; where both selectors have such runs, the difference is unknown."
)
PNGS = {
    "accuracy": accuracy_charts,
    "variance": variance_charts,
    "phases": phase_charts,
    "seconds": timing_charts,
    "asked": board_charts,
}
PNG_COLUMNS = {"seconds": 2, "asked": 4}


def write_report(results: Path, out: Path | None = None) -> Path:
    """Write report.html and a PNG of each figure, by default into `results`/report; the path of the page.

    The same results give the same bytes. Without matplotlib only the page is written, with a warning.
    """
    sections = read_sections(results)
    folder = results / "report" if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    path.write_text(page(sections), encoding="utf-8")
    if find_spec("matplotlib") is None:
        warnings.warn("The PNGs of the report need matplotlib: `pip install lightning-diffal[plot]`.", stacklevel=2)
        return path
    from lightning_diffal.studies.report.png import write_png  # noqa: PLC0415, an extra

    for section in sections:
        for name, charts_of in PNGS.items():
            if charts := charts_of(section):
                write_png(charts, folder / f"{section.slug}-{name}.png", PNG_COLUMNS.get(name, 1))
    return path


def verdicts(results: Path) -> list[str]:
    """Each study's result in a few sentences."""
    return [verdict(section) for section in read_sections(results)]


def read_sections(results: Path) -> list[Section]:
    if not results.is_dir():
        raise FileNotFoundError(f"{results}: there is no such folder. `lightning-diffal run` creates one.")
    found = read_results(results)
    if not found:
        raise ValueError(
            f"{results}: no results here. `lightning-diffal run` writes them as STUDY/SELECTOR-SEED-KEY.json."
        )
    return sections_of(found)


def page(sections: Sequence[Section]) -> str:
    most = max(len(section.series) for section in sections)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Active learning: which selector needs the fewest labels"),
        element("style", Markup(color_rules() + (HERE / "page.css").read_text(encoding="utf-8") + switch_rules(most))),
    )
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        top(sections),
        element("main", *(study(section) for section in sections), id="results"),
        element(
            "footer",
            element("p", "Written by lightning-diffal from result files: ", code("lightning-diffal report DIR")),
        ),
        element("script", Markup((HERE / "checkerboard.js").read_text(encoding="utf-8"))),
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
        element("p", runs_summary(section), class_="soft"),
        *notices,
        accuracy_figure(section),
        board_figure(section),
        comparison(section),
        element("div", variance_figure(section), phases_figure(section), class_="pair"),
        seconds_figure(section),
        provenance(section),
        id=section.slug,
        aria_labelledby=f"{section.slug}-title",
    )


def comparison(section: Section) -> Markup:
    tables = [labels_table(section, target, why) for target, why in targets_of(section)]
    note = HOW_CENSORED if tables else "Every run reaches 90% of the best final accuracy with its initial labels."
    return joined(
        difference_figures(section),
        element(
            "div",
            element("h3", "Area under the curve, and labels needed"),
            element("p", HOW_COMPARED, class_="soft"),
            area_table(section),
            element("p", note, class_="soft"),
            *tables,
            class_="tables",
        ),
    )


def runs_summary(section: Section) -> str:
    seconds = sum(sum(step.seconds.values()) for run in section.results for step in run.rounds)
    runs, rounds = len(section.results), len(section.labels)
    seeds = ", ".join(map(str, section.seeds))
    return (
        f"{len(section.series)} selectors, {runs} runs of {rounds} {'round' if rounds == 1 else 'rounds'}, "
        f"{'seed' if len(section.seeds) == 1 else 'seeds'} {seeds}; {duration(seconds)} of computing in total, "
        f"{duration(seconds / runs)} per run."
    )


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"


def provenance(section: Section) -> Markup:
    versions = sorted({f"{name} {version}" for run in section.results for name, version in run.versions.items()})
    selectors = {one.name: one.runs[one.seeds[0]].settings.get("selector") for one in section.series}
    own = [f"{name}: {parameters}" for name, parameters in selectors.items() if parameters]
    options = element(
        "p", "Numbers below that differ from the study’s defaults are options, such as --pool N.", class_="soft"
    )
    parts = [element("pre", code(command(section))), options, settings_list(section)]
    if own:
        parts.append(element("ul", *(element("li", words) for words in own), class_="soft"))
    if versions:
        parts.append(element("p", f"Versions: {', '.join(versions)}.", class_="soft"))
    return element("details", element("summary", "Command, settings, versions"), *parts)


def command(section: Section) -> str:
    """The command for these runs, with the defaults of the study."""
    selectors = " ".join(f"--selector {name}" for name in dict.fromkeys(one.selector for one in section.series))
    dataset = str(section.settings.get("dataset", ""))
    # A study on another data set than its own is named STUDY-DATASET.
    study = section.study.removesuffix(f"-{dataset}")
    other = f" --dataset {dataset}" if study != section.study else ""
    data = "" if study in {"checkerboard", "digits"} else " --data DIR"
    return f"lightning-diffal run {study} {selectors} --seeds {max(section.seeds) + 1}{other}{data}"


def code(words: str) -> Markup:
    return element("code", words)


def color_rules() -> str:
    light, dark = variables(LIGHT | LIGHT_PAGE), variables(DARK | DARK_PAGE)
    hues = "".join(f".hue-{name}{{color:var(--{name})}}" for name in LIGHT)
    fills = "".join(f".fill-{name}{{fill:var(--{hue});background:var(--{hue})}}" for name, hue in FILLS.items())
    return f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{hues}{fills}\n"


def variables(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def switch_rules(most: int) -> str:
    """Unchecking a selector hides it in every figure of its section, without JavaScript."""
    return "".join(f"section:has(.show-{index}:not(:checked)) .series-{index}{{display:none}}" for index in range(most))
