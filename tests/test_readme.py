"""What a user might copy is run as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_snippets_of_the_readme_run(snippet, capsys):
    exec(compile(snippet, "README.md", "exec"), {})
    assert re.search(r"tensor\(\[(\s*\d+,){19}\s*\d+\]\)", capsys.readouterr().out), "twenty indices"


def test_the_readme_has_a_snippet():
    assert SNIPPETS


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
