"""Killed at any moment and started again, a run comes to the same labels."""

import json
import subprocess
import sys
from pathlib import Path

KILLS = 10  # of each of three kinds of runs


def test_killed_at_any_moment_it_resumes_with_the_same_labels(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.plugin.kill_and_resume", str(tmp_path), str(KILLS)]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    reports = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(reports) == 3 * KILLS, ended.stderr
    assert all(report["same"] and report["kept"] for report in reports)
    assert sum(report["asked_twice"] for report in reports) == 0
    assert sum(report["answered"] for report in reports) > 0
    # The kills fell into the middle of runs, at different places.
    places = {report["lines_when_killed"] for report in reports}
    assert len(places) >= 3
    assert min(places) < max(report["rounds"] for report in reports)
