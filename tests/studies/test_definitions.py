import json
from dataclasses import replace

import pytest

from lightning_diffal.studies.definitions import STUDIES
from lightning_diffal.studies.results import result_path
from lightning_diffal.studies.run_spec import own_settings
from tests.markdown import ROOT

# Section 6 and appendix A: pool, first labels, B, labels at the end, batch, epochs, K, T, P, δ.
PAPER = {
    "checkerboard": (2_000, 8, 5, 128, 1, 100, 10, 4, 1, None),
    "mnist-fc": (10_000, 20, 20, 300, 8, 100, 10, 5, 1, None),
    "mnist-conv": (10_000, 20, 20, 300, 8, 100, 10, 5, 1, None),
    "cifar10": (50_000, 200, 200, 2_000, 100, 100, 20, 4, 10, 0.1),
    "svhn": (20_000, 200, 200, 2_000, 50, 50, 20, 5, 1, 0.1),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_numbers_are_those_of_the_paper(name):
    study, classes = STUDIES[name], 2 if name == "checkerboard" else 10
    first = study.first * classes
    training = (study.batch_size, study.epochs)
    diffusion = (study.neighbors, study.steps, study.mini_batch, study.shrink_below)
    assert (study.pool, first, study.query_size, study.budget, *training, *diffusion) == PAPER[name]
    assert study.soft_start == (name == "svhn")
    study.check(classes)


def test_fits_are_counted_with_the_last_query_cut_short():
    study = replace(STUDIES["checkerboard"], first=2, query_size=5)
    assert [replace(study, budget=budget).fits(2) for budget in (4, 5, 9, 10)] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 7}, "--budget 7: there are 8 initial labels already"),
        ({"budget": 90, "pool": 80}, "--budget 90: the pool has 80"),
        ({"budget": 10, "pool": 10}, "--neighbors 10: a pool of 10"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(STUDIES["checkerboard"], **changes).check(2)


def test_results_of_earlier_versions_are_found_under_the_settings_of_today():
    files = [path for name in STUDIES for path in (ROOT / "docs" / "results" / name).glob("*.json")]
    moved = []
    for path in files:
        result = json.loads(path.read_text())
        study, of_data = STUDIES[result["study"]], ("num_classes", "data")
        options = {name: result["settings"][name] for name in ("shrink_below", "budget", "pool", "first", "query_size")}
        learning = "learn_from_graph" in result["settings"]
        study = replace(study, learn_from_graph=learning, **options)
        today = study.settings() | own_settings(study, result["selector"])
        today |= {name: result["settings"][name] for name in of_data if name in result["settings"]}
        if path.name != result_path(result["study"], result["selector"], result["seed"], today).name:
            moved.append(path.name)
    assert len(files) > 250
    assert moved == []


def test_our_studies_are_as_their_documentation_says():
    study = STUDIES["cifar10-efficientnet"]
    assert (study.components, study.pool, study.epochs, study.batch_size) == (256, 20_000, 60, 20)
    assert (study.fits(10), study.neighbors, study.steps) == (15, 15, 3)
    tail = STUDIES["mnist-lt"]
    assert tail.settings() == STUDIES["mnist-fc"].settings() | {"name": "mnist-lt", "pool": 2_482, "imbalance": 100}
