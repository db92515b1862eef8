"""What the documentation says of several processes is what the model prints."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_model_in_the_documentation_is_the_one_that_is_computed():
    model = runpy.run_path(str(ROOT / "benchmarks" / "model_of_ranks.py"))
    assert model["table"]() in (ROOT / "docs" / "several_processes.md").read_text()
