"""Killed at any moment and started again, a run comes to the same labels."""

import pytest

from tests.plugin.kill_and_resume import reports

KILLS = 10  # of each of two kinds of runs


@pytest.mark.long
def test_killed_at_any_moment_it_resumes_with_the_same_labels(tmp_path):
    found = list(reports(tmp_path, KILLS))
    assert len(found) == 2 * KILLS
    assert all(report["same"] and report["kept"] for report in found)
    assert sum(report["asked_twice"] for report in found) == 0
    assert sum(report["answered"] for report in found) > 0
    # The kills fell into the middle of runs, at different places; the last may come when a run is over.
    assert sum(report["killed"] for report in found) >= len(found) - 4
    places = {report["lines_when_killed"] for report in found}
    assert len(places) >= 3
    assert min(places) < max(report["rounds"] for report in found)
