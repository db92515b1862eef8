from lightning_diffal.studies.results import Result, Round
from lightning_diffal.studies.summary_table import summary_table


def result(selector, seed, accuracies):
    rounds = [
        Round(labels=8 + i, accuracy=a, asked=[], reached=[], unreached=None, seconds={"fit": 2.0, "query": 1.0})
        for i, a in enumerate(accuracies)
    ]
    return Result(study="s", selector=selector, seed=seed, settings={}, initial=[], rounds=rounds)


def test_the_table_has_means_over_seeds_the_best_selector_first():
    lines = summary_table(
        [result("worse", 0, [0.1, 0.3]), result("better", 0, [0.2, 0.6]), result("better", 1, [0.4, 0.8])]
    )
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    assert cells[2] == ["better", "2", "0.500 ± 0.141", "0.700 ± 0.141", "9", "6"]
    assert cells[3] == ["worse", "1", "0.200", "0.300", "9", "6"]
