"""The report of a run: one self-contained HTML page, and a PNG of each figure, from the files in its folder alone."""

from pathlib import Path

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.report.charts import Figure
from lightning_diffal.report.png import write_png
from lightning_diffal.report.run.class_figure import class_figure
from lightning_diffal.report.run.gallery import gallery
from lightning_diffal.report.run.graph_figure import graph_figure
from lightning_diffal.report.run.metric_figures import count, finding, metric_figures
from lightning_diffal.report.run.query_figures import phases_figure, seconds_figure
from lightning_diffal.report.run.reliability_figure import reliability_figure
from lightning_diffal.report.run.run_data import RunData, read_run_data
from lightning_diffal.report.templates import environment
from lightning_diffal.report.timings import STAGES

ENDINGS = {
    "budget": "The budget is spent.",
    "pool": "The whole pool has been asked.",
    "stop_when": "It was stopped by stop_when.",
}


def write_run_report(folder: Path, out: Path | None = None) -> Path:
    """Write report.html and a PNG of each figure, by default into `folder`/report; the path of the page."""
    run = read_run_data(folder)
    target = folder / "report" if out is None else out
    target.mkdir(parents=True, exist_ok=True)
    figures = figures_of(run)
    path = target / "report.html"
    path.write_text(page(run, figures), encoding="utf-8")
    for name, figure in figures.items():
        if figure.charts:
            write_png(figure.charts, target / f"{name}.png", figure.columns)
    return path


def figures_of(run: RunData) -> dict[str, Figure]:
    """The figures that the page and the PNGs both show, by the names of the PNGs."""
    metrics = dict(zip(("metric", "other-metrics"), metric_figures(run), strict=False))
    others = {
        "classes": class_figure(run),
        "phases": phases_figure(run),
        "graph": graph_figure(run),
        "reliability": reliability_figure(run),
        "seconds": seconds_figure(run),
    }
    return metrics | {name: figure for name, figure in others.items() if figure is not None}


def page(run: RunData, figures: dict[str, Figure]) -> str:
    templates = environment(Path(__file__).parent, lead, settings_of)
    return templates.get_template("run.html").render(run=run, figures=figures, rounds=gallery(run), stages=STAGES)


def lead(run: RunData) -> str:
    """The run in a few sentences."""
    labels = run.counts.total()
    sentences = [f"{len(run.fits)} fit{'s' if len(run.fits) != 1 else ''}, {count(labels)}."]
    if run.pool_size:
        sentences[0] = sentences[0].removesuffix(".") + f" of a pool of {run.pool_size:,}."
    if run.history.metric_names():
        sentences.append(finding(run, run.history.main_metric()))
    if run.waiting is not None:
        latest = Annotations(run.folder).latest
        answered = sum(index in latest for index in run.waiting.indices)
        since = f" since {run.waiting.asked_at[:16].replace('T', ' ')} UTC" if run.waiting.asked_at else ""
        sentences.append(f"It waits for answers{since}: {answered} of {len(run.waiting.indices)} are there.")
    sentences.append(ENDINGS.get(run.records[-1].last or "", ""))
    return " ".join(filter(None, sentences))


def settings_of(run: RunData) -> dict[str, str]:
    last = run.records[-1]
    return {
        "selector": last.selector,
        "seed": str(last.seeds["run"]),
        "first labels": last.initial,
        "dataset": last.dataset,
        "optimizer steps": f"{sum(record.steps for record in run.records):,}",
    }
