"""What do many classes cost in a diffusion query? CPU seconds of a choice, and the most memory held.

    python benchmarks/bench_many_classes.py
    python benchmarks/bench_many_classes.py --graph made-up --points 1281167 --classes 1000 --labels 13000 --steps 4

Labels at random, and as many more as it takes until every point is reached, since χ is not computed before. `knn` is
the graph of normal embeddings in 20 dimensions, where walks of a few steps reach a large part of the pool. `made-up` is
for sizes at which a search would take hours: points of a class are near each other in a sequence, 26 of 29 neighbors
are less than 200 places away, and 3 are points of one of ten similar classes. Memory is that of the process, so it says
most with one row.
"""

import argparse
import resource
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lightning_diffal import UNLABELED, NeighborGraph, batch_query, build_graph
from lightning_diffal.diffusion.diffuse import default_steps


def made_up_graph(points: int, classes: int) -> NeighborGraph:
    """29 out-edges a node; the class of node i is i · classes // points."""
    generator = torch.Generator().manual_seed(0)
    node = torch.arange(points)[:, None]
    near = (node + torch.randint(1, 200, (points, 26), generator=generator)) % points
    size = points // classes
    similar = (node // size * 7 + torch.randint(10, (points, 3), generator=generator) * 13 + 1) % classes
    far = (similar * size + torch.randint(size, (points, 3), generator=generator)) % points
    col = torch.cat([near, far], dim=1)
    weight = torch.rand(points * 29, generator=generator) * 0.6 + 0.4
    return NeighborGraph(torch.arange(0, points * 29 + 1, 29), col.flatten(), weight)


def measured(
    graph: NeighborGraph, truth: Tensor, classes: int, labels: int, steps: int, answers: bool, choices: int
) -> tuple[float, float]:
    """CPU seconds of the first choice, and of each that follows."""
    known = torch.full_like(truth, UNLABELED)
    some = torch.randperm(len(truth), generator=torch.Generator().manual_seed(1))[:labels]
    known[some] = truth[some]
    # Mini-batches of any size will do here: only what is not reached matters.
    while not (query := batch_query(graph, known, classes, size=16, steps=steps, answer=lambda i: truth[i])).reached[0]:
        new = query.indices[~query.reached]
        known[new] = truth[new]
    seconds: list[float] = []

    def clock(mini_batches: Sequence[int]) -> Iterator[int]:
        for start in mini_batches:
            before = time.process_time()
            yield start
            seconds.append(time.process_time() - before)

    answer = (lambda i: truth[i]) if answers else None
    batch_query(graph, known, classes, size=1 + choices, steps=steps, answer=answer, progress=clock)
    # The last label is not added, since no choice follows.
    return seconds[0], sum(seconds[1:-1]) / max(1, choices - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", choices=["knn", "made-up"], default="knn")
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--labels", type=int, nargs="+", default=[200, 2_000, 12_000])
    parser.add_argument("--steps", type=int, help="T; by default that of the library")
    parser.add_argument("--choices", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    n = arguments.points
    generator = torch.Generator().manual_seed(0)
    if arguments.graph == "knn":
        graph = build_graph(torch.randn(n, 20, generator=generator), None)
    else:
        graph = made_up_graph(n, max(arguments.classes))
    steps = arguments.steps or default_steps(graph)
    graph.incoming, graph.transition  # noqa: B018 - cached here, so that no row has to
    degree = len(graph.col) // n
    print(f"torch {torch.__version__}, 1 thread, CPU; n = {n:,}, k = {degree}, T = {steps}, {arguments.graph}\n")
    print("| labels | classes | first choice s | a choice s | with answers s | most memory GB |")
    print("|---|---|---|---|---|---|")
    for labels in arguments.labels:
        for classes in arguments.classes:
            if arguments.graph == "knn":
                truth = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(2))
            else:
                truth = torch.arange(n) * classes // n
            options = (graph, truth, classes, labels, steps)
            first, each = measured(*options, False, arguments.choices)
            _, answered = measured(*options, True, arguments.choices)
            gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
            print(
                f"| {labels:,} | {classes:,} | {first:.3f} | {each:.4f} | {answered:.4f} | {gigabytes:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
