"""Results nobody ran, small enough to compute by hand what a report should say of them."""

from lightning_diffal.studies.report.page import page
from lightning_diffal.studies.report.sections import sections_of
from lightning_diffal.studies.results import Result, Round
from tests.html_tree import parse

LABELS = [8, 13, 18, 23]
GAIN = {"diffusion": 0.12, "coreset": 0.09, "random": 0.08, "entropy <b>&\"'": 0.03}
SEEDS = (0, 1, 2)
STUDIES = ("checkerboard", "mnist-fc")


def accuracy_of(selector, seed, place):
    """Seeds differ by far more than selectors do; no two numbers are alike."""
    return round(0.45 + 0.07 * seed + GAIN[selector] * place + 0.001 * ((7 * seed + 3 * place + len(selector)) % 5), 4)


def result_of(study, selector, seed, /, labels=LABELS, **settings):
    graph = selector == "diffusion"
    rounds, points = [], {str(index): [index / 8, 0.3] for index in range(8)}
    for place, count in enumerate(labels):
        asked = [] if place == len(labels) - 1 else list(range(100 + 5 * place, 105 + 5 * place))
        points |= {str(index): [(index * 0.37 + 0.1 * seed) % 1, (index * 0.73) % 1] for index in asked}
        reached = [place > 0 or index % 5 == 0 if graph else None for index in asked]
        seconds = {
            "fit": 2.0 + place,
            **({"graph": 0.25} if graph and asked else {}),
            **({"query": 0.5} if asked else {}),
        }
        rounds.append(
            Round(
                labels=count,
                accuracy=accuracy_of(selector, seed, place),
                asked=asked,
                reached=reached,
                unreached=None,
                seconds=seconds,
            )
        )
    board = {"squares": 4} if study == "checkerboard" else {}
    return Result(
        study=study,
        selector=selector,
        seed=seed,
        settings={"pool": 500, "query_size": 5, "num_classes": 2, "selector": f"{selector}()", **board, **settings},
        initial=list(range(8)),
        rounds=rounds,
        points=points if board else {},
        versions={"torch": "2.15"},
    )


def results_of(studies=STUDIES, selectors=tuple(GAIN), seeds=SEEDS, **more):
    return [result_of(study, selector, seed, **more) for study in studies for selector in selectors for seed in seeds]


def page_of(results):
    return parse(page(sections_of(results)))
