"""What a user might copy is run as it stands."""

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import torch
import yaml

from lightning_diffal import UNLABELED, Snapshot
from tests.plugin.toy_model import Data, Net

ROOT = Path(__file__).parents[1]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def snippet_with(words):
    return next(snippet for snippet in SNIPPETS if words in snippet)


def run_behind_the_callback(snippet, tmp_path, monkeypatch):
    """The names a snippet leaves behind, with a model and data of somebody else's."""
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names = {"model": Net(), "data": Data()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning's default logger and bars
        exec(compile(snippet, "README.md", "exec"), names)
    assert names["history"].labels == [20, 40, 60, 80, 100]
    assert all(row["steps"] >= 20 for row in names["history"])
    return names


def test_the_ten_lines_of_the_readme_run_on_a_model_and_data_of_somebody_elses(tmp_path, monkeypatch, capsys):
    snippet = snippet_with("DiffusionActiveLearning(")
    names = run_behind_the_callback(snippet, tmp_path, monkeypatch)
    assert names["history"].metric("val_acc")[-1] > 0.8
    assert "val_acc" in capsys.readouterr().out
    assert len(snippet.strip().splitlines()) <= 10


def test_the_core_snippet_of_the_readme_runs(capsys):
    exec(compile(snippet_with("build_graph("), "README.md", "exec"), {})
    assert re.search(r"tensor\(\[(\s*\d+,){19}\s*\d+\]\)", capsys.readouterr().out), "twenty indices"


def test_a_selector_of_ones_own_runs_as_the_readme_says(tmp_path, monkeypatch):
    names = run_behind_the_callback(snippet_with("LeastNormSelector"), tmp_path, monkeypatch)
    # It chooses by its score: alone, the smallest embeddings there are.
    embeddings = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    snapshot = Snapshot(labels=torch.full((500,), UNLABELED), num_classes=3, embeddings=embeddings)
    smallest = embeddings.norm(dim=1).argsort()[:20]
    assert names["LeastNormSelector"]()(snapshot, 20).indices.tolist() == smallest.tolist()


def test_every_snippet_of_the_readme_is_run_by_a_test():
    assert len(SNIPPETS) == 3


def test_the_yaml_of_the_readme_names_a_class_and_its_arguments():
    text = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    entry = yaml.safe_load(text)["trainer"]["callbacks"][0]
    module, name = entry["class_path"].rsplit(".", 1)
    assert getattr(importlib.import_module(module), name)(**entry["init_args"]).config.budget == 100


def test_the_core_example_draws_and_diffusion_beats_random(tmp_path):
    script = ROOT / "examples" / "core_without_lightning.py"
    command = [sys.executable, str(script), "--rounds", "16", "--seeds", "2", "--out", str(tmp_path)]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "core.png").read_bytes().startswith(b"\x89PNG")
    last = [line for line in table.splitlines() if line.startswith("| 88 ")]
    diffusion, random = map(float, last[0].split("|")[2:4])
    assert diffusion > random > 0.6


def test_torch_cluster_was_built_for_this_torch():
    command = [sys.executable, str(ROOT / "tools" / "install_torch_cluster.py")]
    assert not subprocess.run(command, check=True, capture_output=True, text=True).stdout, "nothing left to build"
