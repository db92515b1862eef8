"""The numbers of results in the README and in docs/ are those of the result files, computed here once more."""

import json
import re
from collections import defaultdict
from statistics import fmean, stdev

import pytest
from scipy import stats

from tests.markdown import ROOT, tables

PAGE = ROOT / "docs" / "results.md"
INTERVAL = re.compile(r"(-?\.\d{3})[^.()]*? \(95% CI (-?\.\d{3}) to (-?\.\d{3})\)")


@pytest.fixture(scope="module")
def results():
    return [json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "results").glob("*/*.json"))]


def keeps_steps(result):
    return result["study"] == "cifar10" and result["settings"]["shrink_below"] == 0


def series_of(result):
    """The name of a result's row: learning from the graph is a series of its own."""
    return result["selector"] + ", learning from the graph" * ("learn_from_graph" in result["settings"])


def accuracies(result):
    return [step["accuracy"] for step in result["rounds"]]


@pytest.fixture(scope="module")
def means(results):
    """The mean accuracy over the rounds, by study, selector and seed."""
    found = defaultdict(dict)
    for result in results:
        name = f"{series_of(result)}, δ = 0" if keeps_steps(result) else series_of(result)
        assert result["seed"] not in found[result["study"], name]
        found[result["study"], name][result["seed"]] = fmean(accuracies(result))
    return found


def spread(values):
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def difference(means, study, this, that):
    """Of two selectors paired by shared seeds: the mean difference and its 95% interval, as the pages write them."""
    mine, theirs = means[study, this], means[study, that]
    pairs = [[side[seed] for seed in sorted(mine.keys() & theirs.keys())] for side in (mine, theirs)]
    interval = stats.ttest_rel(*pairs).confidence_interval(0.95)
    return [f"{value:.3f}".replace("0.", ".", 1) for value in (fmean(pairs[0]) - fmean(pairs[1]), *interval)]


def test_the_tables_of_accuracy_are_those_of_the_result_files(results):
    studies = defaultdict(lambda: defaultdict(list))
    for result in results:
        studies[result["study"], keeps_steps(result)][series_of(result)].append(result)
    expected = []
    for selectors in studies.values():
        best_first = sorted(selectors, key=lambda name: -fmean(fmean(accuracies(run)) for run in selectors[name]))
        expected.append([row_of(name, selectors[name]) for name in best_first])
    written = [rows for head, _, *rows in tables(PAGE) if head[-1] == "seconds a run"]
    assert sorted(written) == sorted(expected)
    assert len(written) == 10


def row_of(selector, runs):
    seconds = fmean(sum(sum(step["seconds"].values()) for step in run["rounds"]) for run in runs)
    labels = {run["rounds"][-1]["labels"] for run in runs}
    means, last = [fmean(accuracies(run)) for run in runs], [accuracies(run)[-1] for run in runs]
    return [selector, str(len(runs)), spread(means), spread(last), *map(str, labels), f"{seconds:.0f}"]


def test_the_paired_differences_are_those_of_the_result_files(means):
    (rows,) = [rows for head, _, *rows in tables(PAGE) if "minus that" in head]
    assert len(rows) > 40
    for study, this, that, *written in rows:
        mean, low, high = difference(means, study, this, that)
        seeds = len(means[study, this].keys() & means[study, that].keys())
        significant = "no" if low.startswith("-") is not high.startswith("-") else "yes"
        assert written == [str(seeds), mean if mean.startswith("-") else f"+{mean}", f"{low} to {high}", significant]
    for study in {study for study, _ in means} - {"svhn"}:
        ours = "coverage" if (study, "coverage") in means else "diffusion"
        others = {name for where, name in means if where == study and "learning" not in name} - {ours}
        assert others == {that for where, this, that, *_ in rows if (where, this) == (study, ours)}


def test_every_interval_in_the_prose_is_one_of_the_table():
    (rows,) = [rows for head, _, *rows in tables(PAGE) if "minus that" in head]
    known = set()
    for *_, mean, interval, _ in rows:
        low, high = (float(bound) for bound in interval.split(" to "))
        known |= {(float(mean), low, high), (-float(mean), -high, -low)}  # either side may be named first
    prose = " ".join(PAGE.read_text().split())
    found = [tuple(map(float, match.groups())) for match in INTERVAL.finditer(prose)]
    assert len(found) == prose.count("(95% CI ")
    assert [numbers for numbers in found if numbers not in known] == []


def test_the_rows_of_the_readme_are_those_of_the_result_files(means):
    (rows,) = [rows for head, _, *rows in tables(ROOT / "README.md") if head[0] == "command"]
    assert len(rows) == 6
    shown = ("coverage, learning from the graph", "coverage", "diffusion", "badge", "uherding", "random")
    for command, *written in rows:
        study, expected = command.split()[2].strip("`"), []
        for selector in shown:
            values = list(means.get((study, selector), {}).values())
            expected.append(spread(values) if values else "–")
        others = [name for where, name in means if where == study and "learning" not in name and name != "coverage"]
        best = max(others, key=lambda name: fmean(means[study, name].values()))
        mean, low, high = difference(means, study, "coverage", best)
        expected.append(f"{best} {mean if mean.startswith('-') else f'+{mean}'} ({low} to {high})")
        assert written == expected


def test_every_accuracy_in_the_prose_is_in_a_table():
    lines = PAGE.read_text().splitlines()
    prose = "\n".join(line for line in lines if not line.startswith("|"))
    cells = "\n".join(line for line in lines if line.startswith("|"))
    named = re.findall(r"\b0\.\d{3}\b", prose)
    assert len(named) >= 4
    assert [accuracy for accuracy in named if f" {accuracy} ±" not in cells] == []


def test_shrinking_steps_make_nine_of_ten_queries_explore(results):
    reached = defaultdict(list)
    for result in results:
        if (result["study"], result["selector"]) == ("cifar10", "diffusion"):
            points = [point for step in result["rounds"] for point in step["reached"]]
            reached[result["settings"]["shrink_below"]] += points
    share = {shrink_below: points.count(False) / len(points) for shrink_below, points in reached.items()}
    assert share == {0.1: pytest.approx(0.9, abs=0.05), 0.0: pytest.approx(0, abs=0.05)}


def test_the_first_figure_is_described_as_it_is(results):
    """Coverage leads all others from 40 labels on."""
    assert "coverage leads from 40 labels on" in (ROOT / "README.md").read_text()
    curves = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result["study"] == "mnist-fc":
            for step in result["rounds"]:
                curves[step["labels"]][series_of(result)].append(step["accuracy"])
    plain = {labels: [name for name in curve if "learning" not in name] for labels, curve in curves.items()}
    best = {labels: max(plain[labels], key=lambda name: fmean(curves[labels][name])) for labels in curves}
    assert {best[labels] for labels in best if labels >= 40} == {"coverage"}


def test_the_seconds_in_the_readme_are_those_of_the_benchmark():
    (seconds,) = re.findall(r"take (\d+\.\d) s", (ROOT / "README.md").read_text())
    (row,) = [row for rows in tables(ROOT / "docs" / "speed.md") for row in rows if row[0] == "CIFAR-10"][:1]
    assert f"**{seconds}**" in row[-1]
