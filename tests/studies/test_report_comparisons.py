"""What is compared with what, what is said of it, and what is refused."""

import json
from statistics import fmean

import pytest

from lightning_diffal.studies.report import write_report
from lightning_diffal.studies.report.page import page
from lightning_diffal.studies.report.sections import sections_of
from lightning_diffal.studies.report.series import OWN
from lightning_diffal.studies.results import Result, read_results
from tests.html_tree import table_of
from tests.studies.synthetic_results import LABELS, SEEDS, accuracy_of, page_of, result_of, results_of


def test_the_summary_says_who_wins_also_when_it_is_not_diffusion():
    won = page_of(results_of(studies=["mnist-fc"])).classed("lead")[0].text
    assert won == "By mean accuracy over the rounds, diffusion leads in MNIST, fully connected (next is coreset)."
    others = [swapped(result) for result in results_of(studies=["mnist-fc"])]
    lost = page_of(others)
    assert "diffusion does not lead in MNIST, fully connected (random leads)" in lost.classed("lead")[0].text
    verdict = lost.classed("verdicts")[0].text
    assert "Diffusion is 3rd of 4" in verdict
    best, worse = [fmean(accuracy_of(name, seed, 3) for seed in SEEDS) for name in ("diffusion", "random")]
    assert f"At 23 labels random has {best:.3f}, the best; diffusion {worse:.3f}." in verdict


def test_a_tie_is_no_lead():
    copies = [Result(**{**vars(run), "selector": "badge"}) for run in results_of(selectors=["diffusion"])]
    lead = page_of([*results_of(), *copies]).classed("lead")[0].text
    assert lead.count("(next is badge, equal to three digits)") == 2


def swapped(result):
    names = {"random": "diffusion", "diffusion": "random"}
    return Result(**{**vars(result), "selector": names.get(result.selector, result.selector)})


def test_unequal_settings_are_never_mixed():
    small = results_of(studies=["mnist-fc"], selectors=["diffusion", "random"], pool=99)
    found = page_of([*small, *results_of(studies=["mnist-fc"])])
    titles = [node.text for node in found.all("h2")]
    assert titles == ["MNIST, fully connected (pool 500)", "MNIST, fully connected (pool 99)"]
    assert [node.attributes["id"] for node in found.all("section")] == ["mnist-fc", "mnist-fc-2"]
    assert len(table_of(list(found.all("section"))[1], "Area under the curve")) == 2


def test_a_selector_with_two_sets_of_parameters_is_two_series():
    other = [result_of("mnist-fc", "diffusion", seed, **{OWN: "diffusion(steps=9)"}) for seed in SEEDS]
    table = table_of(page_of([*results_of(studies=["mnist-fc"]), *other]), "Area under the curve")
    assert {"diffusion diffusion()", "diffusion diffusion(steps=9)"} <= table.keys()


def test_coverage_is_what_the_sentences_are_about_and_learning_from_the_graph_is_no_rival():
    ours = [Result(**{**vars(run), "selector": "coverage"}) for run in results_of(["mnist-fc"], ["coreset"])]
    graph = {"graph_features": "inputs", "learn_from_graph": True}
    learning = [
        Result(**{**vars(run), "settings": run.settings | graph}) for run in results_of(["mnist-fc"], ["diffusion"])
    ]
    found = page_of([*results_of(["mnist-fc"], ["random", "entropy <b>&\"'"]), *ours, *learning])
    lead = "By mean accuracy over the rounds, coverage leads in MNIST, fully connected (next is random)."
    assert found.classed("lead")[0].text == lead
    table = table_of(found, "Area under the curve")
    assert {"coverage", "diffusion, learning from the graph"} <= table.keys()
    assert "Coverage is 2nd of 4" in found.classed("verdicts")[0].text


def test_runs_with_other_rounds_are_left_out_and_named():
    results = [*results_of(studies=["mnist-fc"]), result_of("mnist-fc", "random", 3, labels=LABELS[:2])]
    results.append(Result(**{**vars(results[0]), "seed": 4, "rounds": []}))
    notices = [node.text for node in page_of(results).classed("notice")]
    assert notices == [
        "Left out: random with seed 3, which has 2 from 8 to 13 labels; the others have 4 from 8 to 23 labels.",
        "Left out: diffusion with seed 4, which has no rounds; the others have 4 from 8 to 23 labels.",
    ]


def test_a_selector_with_fewer_seeds_is_compared_over_those_it_has():
    results = [run for run in results_of(studies=["mnist-fc"]) if (run.selector, run.seed) != ("coreset", 1)]
    found = page_of(results)
    assert any("coreset lacks seed 1" in node.text for node in found.classed("notice"))
    assert table_of(found, "Area under the curve")["coreset"]["minus random, paired"].endswith("2 seeds")


def test_runs_that_do_not_start_alike_are_not_compared():
    results = results_of(studies=["mnist-fc"])
    results[4].initial[0] = 499
    with pytest.raises(ValueError, match="mnist-fc: the runs of seed 1 do not have the same initial labels"):
        page_of(results)


def test_the_command_names_the_data_a_study_was_run_on():
    found = page_of(results_of(studies=["mnist-fc-usps"], selectors=["random"], dataset="usps"))
    assert "lightning-diffal run mnist-fc --selector random --seeds 3 --dataset usps --data DIR" in found.text


def test_one_seed_and_one_round_are_said_to_be_so():
    found = page_of(results_of(seeds=[5], labels=LABELS[:1]))
    words = found.text
    assert "One seed, so there is no band." in words
    assert "One seed has no variance" in words
    assert "(1 seed, no interval)" in words
    assert "significance is unknown" in words
    assert "Every run reaches 90% of the best final accuracy with its initial labels." in words
    assert not found.classed("player")
    assert table_of(next(found.all("section")), "Area under the curve")["coreset"]["minus random, paired"].endswith(
        ", 1 seed"
    )


def test_write_report_a_folder_is_the_same_to_the_byte(tmp_path):
    for result in reversed(results_of(studies=["checkerboard"])):
        result.write(tmp_path)
    path = write_report(tmp_path)
    assert path == tmp_path / "report" / "report.html"
    kinds = ("accuracy", "variance", "phases", "seconds", "asked")
    assert {file.name for file in path.parent.iterdir()} == {path.name, *(f"checkerboard-{kind}.png" for kind in kinds)}
    (section,) = sections_of(read_results(tmp_path))
    assert page([section]) == path.read_text()
    write_report(tmp_path, tmp_path / "again")
    assert all((tmp_path / "again" / file.name).read_bytes() == file.read_bytes() for file in path.parent.iterdir())


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no results here"):
        write_report(tmp_path)
    path = result_of("mnist-fc", "random", 0).write(tmp_path)
    path.with_name("broken-0-0.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken-0-0\.json: this is not a result"):
        write_report(tmp_path)


def test_bad_numbers_are_refused_with_the_file_they_are_in(tmp_path):
    path = result_of("mnist-fc", "random", 0).write(tmp_path)
    content = json.loads(path.read_text())
    content["rounds"][1]["accuracy"] = float("nan")
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{path.name}: round 2 has accuracy nan"):
        write_report(tmp_path)
    with pytest.raises(ValueError, match="random with seed 0 occurs twice"):
        page_of([result_of("mnist-fc", "random", 0)] * 2)
    lost = result_of("checkerboard", "random", 0)
    del lost.points["104"]
    with pytest.raises(ValueError, match="points has no coordinates of 104"):
        page_of([lost])
    far = result_of("checkerboard", "random", 0)
    far.points["104"] = [2.5, 0.1]
    with pytest.raises(ValueError, match=r"point 104 lies at \[2\.5, 0\.1\], outside the unit square"):
        page_of([far])
    with pytest.raises(ValueError, match="None of the 1 results has a round"):
        page_of([Result(**{**vars(lost), "rounds": []})])
