"""No n × n memory anywhere: 50,000 points have 2.5 billion pairs, which at a byte each would not fit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.selectors.test_contract import SELECTORS

NO_GRAPH = [
    "CoresetSelector()",
    "ProbCoverSelector()",
    "TypiClustSelector()",
    "BADGESelector()",
    "RandomSelector()",
    "UncertaintySelector()",
    "MarginSelector()",
    "EntropySelector(passes=50)",
    "BALDSelector()",
]
SLOWER = ["BAITSelector()", "CoverageSelector()", "UHerdingSelector()"]
GRAPH = ["DiffusionSelector()", "PoissonSelector()", "DirichletSelector()", "LocalMaxSelector(of=EntropySelector())"]


def gigabytes(n, known, size, expressions):
    command = [sys.executable, "-m", "tests.selectors.large_pool", str(n), str(known), str(size), *expressions]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["chosen"] == dict.fromkeys(expressions, size)
    return result


def test_fifty_thousand_points_fit_two_gigabytes():
    assert {code.split("(")[0] for code in NO_GRAPH + SLOWER + GRAPH} == {
        type(selector).__name__ for selector in SELECTORS
    }
    assert gigabytes(50_000, 30, 100, GRAPH)["all"] < 2


@pytest.mark.long
def test_thousands_of_labels_known_and_asked_cost_hardly_more():
    # The embeddings are 2 MB. All distances to the labels would be 0.6 GB; memory left in pieces was once nearly that.
    assert gigabytes(30_000, 5_000, 2_000, NO_GRAPH)["added"] < 0.15


def test_those_that_weigh_all_points_against_each_other_hold_no_pairs():
    assert gigabytes(12_000, 500, 5, SLOWER)["added"] < 0.4, "pairs in float64 would be 1.2 GB"


@pytest.mark.skipif("SLOW" not in os.environ, reason="four minutes: SLOW=1")
@pytest.mark.timeout(1200)
def test_a_million_points_fit_eight_gigabytes():
    assert gigabytes(1_000_000, 5_000, 100, NO_GRAPH)["all"] < 8
