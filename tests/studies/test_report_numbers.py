"""The numbers of the page are those of the result files, computed here once more."""

import itertools
import re
from statistics import fmean, stdev, variance

import pytest
from scipy import stats

from lightning_diffal.report.timings import stages_of
from tests.html_tree import table_of
from tests.studies.synthetic_results import GAIN, LABELS, SEEDS, accuracy_of, page_of, result_of, results_of

KINDS = {"initial": "hue-ink", "exploring": "hue-blue", "refining": "hue-vermilion", "queried": "hue-purple"}


@pytest.fixture(scope="module")
def checkerboard():
    (section,) = page_of(results_of(studies=["checkerboard"])).all("section")
    return section


def test_accuracies_are_means_and_deviations_over_seeds(checkerboard):
    table = table_of(checkerboard, "Accuracy, mean ± standard deviation")
    for selector, (place, count) in itertools.product(GAIN, enumerate(LABELS)):
        values = [accuracy_of(selector, seed, place) for seed in SEEDS]
        assert table[str(count)][selector] == f"{fmean(values):.3f} ± {stdev(values):.3f}"


def test_variances_are_those_over_seeds(checkerboard):
    table = table_of(checkerboard, "Variance of accuracy")
    values = [accuracy_of("coreset", seed, 2) for seed in SEEDS]
    assert table["18"]["coreset"] == f"{variance(values):.6f}"


def test_areas_are_compared_seed_by_seed(checkerboard):
    table = table_of(checkerboard, "Area under the curve")
    mine, theirs = [
        [fmean(accuracy_of(selector, seed, place) for place in range(4)) for seed in SEEDS]
        for selector in ("diffusion", "random")
    ]
    expected = stats.ttest_rel(mine, theirs).confidence_interval(0.95)
    apart = stats.ttest_ind(mine, theirs).confidence_interval(0.95)
    assert apart.low < 0 < expected.low, "only pairing tells them apart"
    told = f"+{fmean(mine) - fmean(theirs):.3f} [+{expected.low:.3f}, +{expected.high:.3f}], 3 seeds"
    assert table["diffusion"]["minus random, paired"] == told
    assert table["diffusion"]["mean accuracy over the rounds"].startswith(f"{fmean(mine):.3f} ± ")
    assert next(iter(table)) == "diffusion"


def test_labels_needed_and_those_who_never_get_there(checkerboard):
    final = {selector: fmean(accuracy_of(selector, seed, 3) for seed in SEEDS) for selector in GAIN}
    target = 0.9 * max(final.values())
    table = table_of(checkerboard, "90% of the best final accuracy")
    for selector in GAIN:
        needed = []
        for seed in SEEDS:
            reached = [count for place, count in enumerate(LABELS) if accuracy_of(selector, seed, place) >= target]
            needed.append(reached[0] if reached else None)
        known = [28 if count is None else count for count in needed]
        expected = f"{'at least ' if None in needed else ''}{fmean(known):,.1f}"
        if needed == [None] * 3:
            expected = "not within 23 labels"
        assert table[selector]["labels, mean over seeds"] == expected
        assert table[selector]["seeds that reach it"] == f"{3 - needed.count(None)} of 3"
    cells = [row["labels, mean over seeds"] for row in table.values()]
    assert any("at least" in cell for cell in cells), "some runs are censored here"
    assert any("not within" in cell for cell in cells), "and some selectors never get there"


def test_phases_only_of_those_who_ask_a_graph(checkerboard):
    table = table_of(checkerboard, "Exploring / refining")
    assert list(table["8"]) == ["labels", "diffusion"]
    assert table["8"]["diffusion"] == "80% / 20%"
    assert table["13"]["diffusion"] == "0% / 100%"


def test_seconds_are_means_over_the_rounds_that_had_the_stage(checkerboard):
    table = table_of(checkerboard, "Mean seconds per round")
    assert table["diffusion"] == {
        "selector": "diffusion",
        "fit": "3.500",
        "embedding": "–",
        "graph": "0.250",
        "query": "0.500",
        "all": "4.250",
    }


def test_all_a_selector_does_beside_the_graph_is_its_query():
    assert stages_of({"fit": 1.0, "graph": 2.0, "score": 0.5, "query": 0.25}) == {
        "fit": 1.0,
        "graph": 2.0,
        "query": 0.75,
    }
    assert stages_of({"fit": 1.0}) == {"fit": 1.0}


def test_every_labeled_point_is_drawn_in_its_place(checkerboard):
    drawn = {"diffusion": (8, 4, 11, 0), "random": (8, 0, 0, 15)}
    for board in checkerboard.classed("board"):
        name = board.attributes["aria-label"].split(",")[0]
        if name in drawn:
            kinds = [sum(len(marks(group)) for group in board.classed(hue)) for hue in KINDS.values()]
            assert tuple(kinds) == drawn[name]
    (board,) = [one for one in checkerboard.classed("board") if "diffusion" in one.attributes["aria-label"]]
    groups = {group.attributes["data-fit"]: group for group in board.all("g") if "data-fit" in group.attributes}
    assert list(groups) == ["0", "1", "2", "3"]
    centres = {(round(x * 200, 1), round(200 - y * 200, 1)) for x, y in ((i / 8, 0.3) for i in range(8))}
    assert {(round(x, 1), round(y, 1)) for x, y in marks(groups["0"])} == centres


def marks(node):
    """The centres of the markers in a group: of a cross from its first stroke, else of the corners or the ring."""
    found = []
    for path in node.all("path"):
        parts = [part for part in path.attributes["d"].split("M") if part]
        kind = path.attributes["class"]
        for part in parts[::2] if kind == "stroke" else parts:
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", part)]
            if "a" in part:
                found.append((numbers[0] + numbers[2], numbers[1]))
            else:
                found.append((fmean(numbers[0::2]), fmean(numbers[1::2])))
    return found


def test_classes_come_from_the_board(checkerboard):
    table = table_of(checkerboard, "Points on the board")
    points = result_of("checkerboard", "random", 0).points
    classes = [(int(4 * x) + int(4 * y)) % 2 for index, (x, y) in points.items() if int(index) >= 100]
    assert table["random"]["of class 0 / 1"] == f"{classes.count(0)} / {classes.count(1)}"
