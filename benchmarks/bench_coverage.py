"""What does a query by diffused coverage cost, beside its graph? CPU seconds, and the most memory held.

    python benchmarks/bench_coverage.py
    python benchmarks/bench_coverage.py --points 1000000 --labels 1000 --size 100

Normal clusters, 100 of them in 10 classes; the model is a softmax over the squared distances to the mean of each
class's labeled points. `no model` is a first query, without labels and logits. Memory is that of the process, the graph
and its search included, so it says most with one row.
"""

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from measure import peak_memory
from torch import Tensor

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import CoverageSelector

Result = TypeVar("Result")
CLASSES, CLUSTERS = 10, 100


def clusters(points: int, dimensions: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    cluster = torch.randint(CLUSTERS, (points,), generator=generator)
    center = 2 * torch.randn(CLUSTERS, dimensions, generator=generator)
    return center[cluster] + torch.randn(points, dimensions, generator=generator), cluster % CLASSES


def nearest_mean_logits(features: Tensor, labels: Tensor) -> Tensor:
    """Classes that nobody has labeled are as far as the mean of all points."""
    means = features.mean(dim=0).repeat(CLASSES, 1)
    for one in labels[labels != UNLABELED].unique().tolist():
        means[one] = features[labels == one].mean(dim=0)
    return -torch.cdist(features, means).square() / features.shape[1]


def cpu_seconds(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def row(points: int, labels: int, size: int, neighbors: int | None, dimensions: int) -> str:
    features, truth = clusters(points, dimensions)
    known = torch.full_like(truth, UNLABELED)
    some = torch.randperm(points, generator=torch.Generator().manual_seed(1))[:labels]
    known[some] = truth[some]
    logits = nearest_mean_logits(features, known) if labels else None
    snapshot = Snapshot(labels=known, num_classes=CLASSES, features=features, logits=logits)
    graph, building = cpu_seconds(lambda: snapshot.feature_graph(neighbors, StageTimer()))
    before = peak_memory()
    selector = CoverageSelector(neighbors=neighbors)
    _, choosing = cpu_seconds(lambda: selector(snapshot, size))
    model = "" if labels else ", no model"
    return (
        f"| {points:,} | {len(graph.col) // points} | {labels:,}{model} | {size} | {building:.1f} | {choosing:.2f} "
        f"| {before:,.0f} | {peak_memory():,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 50_000, 200_000])
    parser.add_argument("--labels", type=int, nargs="+", default=[0, 20, 280])
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--neighbors", type=int)
    parser.add_argument("--dimensions", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {arguments.dimensions} dimensions\n")
    print("| points | neighbors | labels | asked | graph, CPU s | query, CPU s | MiB with the graph | MiB at most |")
    print("|---|---|---|---|---|---|---|---|")
    for points in arguments.points:
        for labels in arguments.labels:
            print(row(points, labels, arguments.size, arguments.neighbors, arguments.dimensions), flush=True)


if __name__ == "__main__":
    main()
