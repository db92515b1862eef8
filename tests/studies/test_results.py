import json

import pytest

from lightning_diffal.studies.results import Result, Round, read_results, result_path, summary_table

ROUND = Round(labels=8, accuracy=0.5, asked=[3, 1], reached=[False, True], unreached=7, seconds={"fit": 1.0})


def result(**changes):
    parts = {
        "study": "s",
        "selector": "random",
        "seed": 0,
        "settings": {"epochs": 2},
        "initial": [5],
        "rounds": [ROUND],
    }
    return Result(**parts | changes)


def test_what_was_written_is_read_back(tmp_path):
    path = result().write(tmp_path)
    assert Result.read(path) == result()
    assert read_results(tmp_path) == [result()]


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        result(rounds=[ROUND, Round(**vars(ROUND) | {"accuracy": float("nan")})]).write(tmp_path)
    assert not list(tmp_path.glob("**/*.json"))


def test_other_settings_are_another_file():
    names = {str(result_path("s", "random", 0, {"epochs": epochs})) for epochs in (1, 2)}
    assert len(names) == 2
    assert str(result_path("s", "random", 0, {"a": 1, "b": 2})) == str(result_path("s", "random", 0, {"b": 2, "a": 1}))


def test_what_a_later_version_adds_is_passed_over(tmp_path):
    path = result().write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mood": "good"}))
    assert Result.read(path) == result()


def test_what_is_no_result_is_refused_by_its_name(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"other\.json: this is not a result"):
        Result.read(path)


def test_the_table_has_means_over_seeds_the_best_selector_first():
    def run(selector, seed, accuracies):
        parts = vars(ROUND) | {"seconds": {"fit": 2.0, "query": 1.0}}
        rounds = [Round(**parts | {"labels": 8 + i, "accuracy": value}) for i, value in enumerate(accuracies)]
        return result(selector=selector, seed=seed, rounds=rounds)

    lines = summary_table([run("worse", 0, [0.1, 0.3]), run("better", 0, [0.2, 0.6]), run("better", 1, [0.4, 0.8])])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    assert cells[2] == ["better", "2", "0.500 ± 0.141", "0.700 ± 0.141", "9", "6"]
    assert cells[3] == ["worse", "1", "0.200", "0.300", "9", "6"]


def test_runs_that_learned_from_the_graph_are_not_averaged_with_the_others():
    runs = [result(), result(settings={"learn_from_graph": True})]
    assert [line.split("|")[1].strip() for line in summary_table(runs).splitlines()[2:]] == [
        "random",
        "random, learning from the graph",
    ]
