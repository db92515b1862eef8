"""The tables of the documentation are what is computed."""

from collections import defaultdict
from pathlib import Path

from lightning_diffal.studies.report.sections import canonical, shared_settings
from lightning_diffal.studies.results import read_results
from lightning_diffal.studies.summary_table import summary_table

ROOT = Path(__file__).parents[1]


def test_the_results_in_the_readme_are_those_of_the_result_files():
    readme = (ROOT / "README.md").read_text()
    results = read_results(ROOT / "docs" / "results")
    assert "mnist-fc" in {result.study for result in results}
    compared = defaultdict(list)
    for result in results:
        compared[result.study, canonical(shared_settings(result))].append(result)
    for settings, runs in compared.items():
        assert summary_table(runs) in readme, settings
