"""The report: one self-contained HTML page, and a PNG of each figure, from result files alone."""

from collections.abc import Sequence
from pathlib import Path

from lightning_diffal.report.charts import Figure
from lightning_diffal.report.png import write_png
from lightning_diffal.report.templates import environment
from lightning_diffal.report.timings import STAGES
from lightning_diffal.studies.report.captions import overall, share, verdict
from lightning_diffal.studies.report.checkerboard import board_figure, board_keys, boards_of
from lightning_diffal.studies.report.comparisons import area_table, difference_figures, labels_tables
from lightning_diffal.studies.report.curves import accuracy_figure, variance_figure
from lightning_diffal.studies.report.query_phases import phases_figure
from lightning_diffal.studies.report.sections import Section, sections_of
from lightning_diffal.studies.report.timings import timing_figure
from lightning_diffal.studies.results import read_results


def write_report(results: Path, out: Path | None = None, selectors: Sequence[str] | None = None) -> Path:
    """Write report.html and a PNG of each figure, by default into `results`/report; the path of the page.

    The same results give the same bytes.

    Args:
        selectors: Those to show; all by default.
    """
    sections = read_sections(results, selectors)
    folder = results / "report" if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    path.write_text(page(sections), encoding="utf-8")
    for section in sections:
        for name, figure in figures_of(section).items():
            if figure and figure.charts:
                write_png(figure.charts, folder / f"{section.slug}-{name}.png", figure.columns)
    return path


def verdicts(results: Path) -> list[str]:
    """Each study's result in a few sentences."""
    return [verdict(section) for section in read_sections(results)]


def read_sections(results: Path, selectors: Sequence[str] | None = None) -> list[Section]:
    if not results.is_dir():
        raise FileNotFoundError(f"{results}: there is no such folder. `lightning-diffal run` creates one.")
    found = read_results(results)
    if found and selectors:
        known = list(dict.fromkeys(result.selector for result in found))
        unknown = [name for name in selectors if name not in known]
        if unknown:
            raise ValueError(f"--selector {unknown[0]}: {results} has no such results, but of {', '.join(known)}.")
        found = [result for result in found if result.selector in selectors]
    if not found:
        raise ValueError(
            f"{results}: no results here. `lightning-diffal run` writes them as STUDY/SELECTOR-SEED-KEY.json, and the "
            "folder of a run of your own, by default active_learning, holds rounds.jsonl."
        )
    return sections_of(found)


def figures_of(section: Section) -> dict[str, Figure | None]:
    """The figures that the page and the PNGs both show, by the names of the PNGs."""
    return {
        "accuracy": accuracy_figure(section),
        "variance": variance_figure(section),
        "phases": phases_figure(section),
        "seconds": timing_figure(section),
        "asked": board_figure(section),
    }


def page(sections: Sequence[Section]) -> str:
    functions = (
        area_table,
        board_keys,
        boards_of,
        command,
        difference_figures,
        figures_of,
        labels_tables,
        overall,
        setting,
        share,
        verdict,
    )
    templates = environment(Path(__file__).parent, *functions)
    return templates.get_template("page.html").render(sections=sections, stages=STAGES)


def command(section: Section) -> str:
    """The command for these runs, with the defaults of the study."""
    selectors = " ".join(f"--selector {name}" for name in dict.fromkeys(one.selector for one in section.series))
    dataset = str(section.settings.get("dataset", ""))
    # A study on another data set than its own is named STUDY-DATASET.
    study = section.study.removesuffix(f"-{dataset}")
    other = f" --dataset {dataset}" if study != section.study else ""
    other += " --learn-from-graph" * all(not one.plain for one in section.series)
    data = "" if study in {"checkerboard", "digits"} else " --data DIR"
    return f"lightning-diffal run {study} {selectors} --seeds {max(section.seeds) + 1}{other}{data}"


def setting(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {setting(inner)}" for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return ", ".join(map(setting, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
