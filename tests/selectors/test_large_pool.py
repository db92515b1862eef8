"""No n × n memory anywhere: 50,000 points have 2.5 billion pairs, which at a byte each would not fit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.selectors.test_contract import SELECTORS

NAMED = ["CoresetSelector()", "ProbCoverSelector()", "TypiClustSelector()", "BADGESelector()"]
OTHERS = [
    "DiffusionSelector()",
    "RandomSelector()",
    "UncertaintySelector()",
    "MarginSelector()",
    "EntropySelector(passes=50)",
    "BALDSelector()",
    "PoissonSelector()",
    "DirichletSelector()",
    "LocalMaxSelector(of=EntropySelector())",
]


def run(n, expressions):
    command = [sys.executable, "-m", "tests.selectors.large_pool", str(n), *expressions]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["chosen"] == dict.fromkeys(expressions, 100)
    return result["gigabytes"]


def test_fifty_thousand_points_fit_two_gigabytes():
    assert {code.split("(")[0] for code in NAMED + OTHERS} == {type(selector).__name__ for selector in SELECTORS}
    assert run(50_000, NAMED + OTHERS) < 2


@pytest.mark.skipif("SLOW" not in os.environ, reason="three minutes: SLOW=1")
@pytest.mark.timeout(1200)
def test_a_million_points_fit_eight_gigabytes():
    assert run(1_000_000, NAMED) < 8
