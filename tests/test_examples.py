"""Every example is short and runs, at toy size."""

import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# The arguments that make each of them small.
SMALL = {
    "smallest_use.py": ["--budget", "30", "--epochs", "3"],
    "own_datamodule.py": ["--epochs", "2"],
    "pretrained_backbone.py": ["--toy"],
    "lightning_cli.py": ["fit", "--config", str(EXAMPLES / "lightning_cli.yaml"), "--trainer.max_epochs=3"],
    "core_without_lightning.py": [],  # test_readme.py runs it
}
pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning, about small runs


def run(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, *SMALL[name]])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def labels_in(ledger):
    return [json.loads(line)["labeled"] for line in ledger.read_text().splitlines()][1:]


def test_every_example_is_run_here_and_shorter_than_80_lines():
    found = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert found.keys() == SMALL.keys()
    assert max(found.values()) < 80


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("smallest_use.py", [10, 20, 30]),
        ("own_datamodule.py", [10, 20, 30, 40, 50]),
        ("pretrained_backbone.py", [10, 20, 30]),
    ],
)
def test_the_budget_is_spent_and_a_table_is_printed(name, labels, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(name, monkeypatch)
    assert labels_in(tmp_path / "active_learning" / "rounds.jsonl") == labels
    table = capsys.readouterr().out
    assert "val_acc" in table
    assert len([line for line in table.splitlines() if line.split()[:1] == [str(len(labels))]]) == 1


def test_each_fit_of_the_command_line_is_a_round(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = tmp_path / "out" / "lightning_cli" / "rounds.jsonl"
    for labels in ([8], [8, 16]):
        run("lightning_cli.py", monkeypatch)
        assert labels_in(ledger) == labels
