"""How near are the seconds that a query says beforehand to those it takes? Both sides in one run.

    python benchmarks/bench_expected_cost.py
    python benchmarks/bench_expected_cost.py --points 200000 --selectors approximate

Made-up embeddings as in bench_million_points.py; 1,000 labels, 200 points asked for.
"""

import argparse

import torch
from bench_million_points import CLASSES, embeddings
from measure import timed

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.plugin.expected_cost import expected_seconds
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import BADGESelector, CoresetSelector, CoverageSelector, DiffusionSelector
from lightning_diffal.selectors.base import Selector, choose

SELECTORS: dict[str, Selector] = {
    "exact": DiffusionSelector(neighbors=15),
    "approximate": DiffusionSelector(neighbors=15, backend="approximate"),
    "coverage": CoverageSelector(neighbors=15),
    "coreset": CoresetSelector(),
    "badge": BADGESelector(),
}


def row(name: str, points: int, labels: int, size: int) -> str:
    rows, truth = embeddings(points)
    known = torch.full_like(truth, UNLABELED)
    some = torch.randperm(points, generator=torch.Generator().manual_seed(1))[:labels]
    known[some] = truth[some]
    logits = torch.randn(points, CLASSES, generator=torch.Generator().manual_seed(3))
    logits[torch.arange(points), truth] += 3
    snapshot = Snapshot(labels=known, num_classes=CLASSES, embeddings=rows.float(), logits=logits)
    expected, trial = timed(lambda: expected_seconds(SELECTORS[name], snapshot, size))
    timer = StageTimer()
    generator = torch.Generator().manual_seed(0)
    _, took = timed(
        lambda: choose(
            SELECTORS[name], snapshot, size, answer=lambda asked: truth[asked], generator=generator, timer=timer
        )
    )
    said = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in expected.items())
    found = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in timer.seconds.items())
    total = sum(expected.values())
    return f"| {name} | {points:,} | {trial:.1f} | {total:.1f} ({said}) | {took:.1f} ({found}) | {total / took:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[50_000, 100_000])
    parser.add_argument("--selectors", nargs="+", choices=SELECTORS, default=list(SELECTORS))
    parser.add_argument("--labels", type=int, default=1_000)
    parser.add_argument("--size", type=int, default=200)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, seconds on the clock\n")
    print("| selector | points | trials | said | took | ratio |\n|---|---|---|---|---|---|", flush=True)
    for points in arguments.points:
        for name in arguments.selectors:
            print(row(name, points, arguments.labels, arguments.size), flush=True)


if __name__ == "__main__":
    main()
