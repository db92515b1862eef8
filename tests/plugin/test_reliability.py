"""The reliability of diffused labels: an honest check, written for the report of the run."""

import json
import warnings

import pytest
import torch

from lightning_diffal.diffusion.leave_one_out import LeaveOneOut, leave_one_out
from lightning_diffal.graph.neighbor_graph import build_graph
from lightning_diffal.plugin.reliability import held_out_expectation, reliability, write_reliability
from lightning_diffal.report.run.page import figures_of
from lightning_diffal.report.run.run_data import read_run_data
from lightning_diffal.studies.cli import main
from tests.html_tree import parse, table_of
from tests.plugin.test_learn_from_graph import Digits, digits, fit, labeled_in


def left_out_of(confidence, correct):
    rows = torch.arange(len(confidence))
    predicted = torch.where(correct, 0, 1)
    return LeaveOneOut(rows, torch.zeros_like(rows), predicted, confidence, torch.ones(len(rows)))


def drawn(count, probability):
    """Confidences, and labels that are right with a probability that is a function of it."""
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(count, generator=generator)
    return left_out_of(confidence, torch.rand(count, generator=generator) < probability(confidence))


def test_no_point_vouches_for_itself():
    found = drawn(100, lambda confidence: confidence)
    before = held_out_expectation(found)
    flipped = found.correct.clone()
    flipped[3::5] = ~flipped[3::5]  # a whole fold
    after = held_out_expectation(left_out_of(found.confidence, flipped))
    same = before == after
    assert same[3::5].all()
    assert not same.all()


def test_the_bins_are_those_of_the_probability_that_labels_were_drawn_by():
    content = reliability(drawn(20000, lambda confidence: confidence.square()), 50000)
    assert content["labels"] == 50000
    assert content["points"] == sum(part["count"] for part in content["bins"]) == 20000
    assert abs(content["accuracy"] - 1 / 3) < 0.02
    assert content["calibration_error"] < 0.02
    for part in content["bins"]:
        assert part["low"] <= part["accuracy"] <= part["high"]
        assert abs(part["accuracy"] - part["expected"]) < 0.05
    narrow = max(content["bins"], key=lambda part: part["count"])
    assert (narrow["high"] - narrow["low"]) / 4 == pytest.approx(
        (narrow["accuracy"] * (1 - narrow["accuracy"]) / narrow["count"]) ** 0.5, rel=0.02
    ), "two standard errors to either side"


def test_few_points_say_nothing_and_a_folder_that_cannot_be_written_ends_no_run(tmp_path):
    write_reliability(tmp_path, drawn(19, lambda confidence: confidence), 19)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="reliability.json cannot be written"):
        write_reliability(tmp_path / "file", drawn(40, lambda confidence: confidence), 40)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("learns", [True, False])
def test_a_run_that_learns_from_the_graph_has_it_in_its_report_as_has_one_that_predicts(tmp_path, learns):
    active, _ = fit(tmp_path, Digits(300), epochs=1, budget=140, learn_from_graph=learns)
    folder, file = tmp_path / "active_learning", tmp_path / "active_learning" / "reliability.json"
    assert file.exists() == learns
    if learns:
        last = file.read_text()
        file.unlink()
    active.predict_labels()
    assert not learns or file.read_text() == last, "both are of all labels"
    content = json.loads(file.read_text())
    known = torch.full((300,), -1)
    known[labeled_in(active)] = digits()[1][labeled_in(active)]
    graph = build_graph(digits()[0][:300], None)
    expected = leave_one_out(graph, known, 10, keep_class_size=True)
    assert (content["points"], content["labels"]) == (140, 140)
    assert content["accuracy"] == pytest.approx(expected.accuracy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["report", str(folder)]) == 0
    page = parse((folder / "report" / "report.html").read_text())
    table = table_of(page, "Labeled points by the expected accuracy of the label that diffuses to them")
    assert [int(row["points"]) for row in table.values()] == [part["count"] for part in content["bins"]]
    assert (folder / "report" / "reliability.png").stat().st_size > 5000
    file.write_text("{")
    assert "reliability" not in figures_of(read_run_data(folder))
