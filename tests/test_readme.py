"""The README is one screen, and what a user might copy from it runs as it stands."""

import subprocess
import sys

import pytest

from tests.markdown import ROOT, blocks


def test_the_readme_is_about_one_hundred_and_fifty_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160


@pytest.mark.long
def test_the_snippet_runs_as_a_script_in_an_empty_folder_and_learns(tmp_path):
    (snippet,) = [block for block in blocks("python") if block.page == "README.md"]
    assert len(snippet.text.splitlines()) <= 25
    script = tmp_path / "quick.py"
    script.write_text(snippet.text)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    header, _, *rows = done.stdout.splitlines()[-8:]
    columns = [dict(zip(header.split(), row.split(), strict=False)) for row in rows]
    assert [int(row["labels"]) for row in columns] == [10, 20, 30, 40, 50, 60]
    first, last = float(columns[0]["val_acc"]), float(columns[-1]["val_acc"])
    assert first < 0.7
    assert last > 0.9


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
