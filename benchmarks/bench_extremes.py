"""Whether many classes, long walks, many neighbors, hubs or many components blow up time or memory.

    python benchmarks/bench_extremes.py [--short] [--points 50000]

CPU seconds of a graph, of a diffusion, and of queries of 20 points by the paper's criterion and by diffused coverage;
the memory is the most that each held beyond what there was before, measured in a process of its own. The first row is
the usual case to compare with. A hub is a neighbor of every other point; components are groups of points far apart.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from measure import peak_memory
from torch import Tensor

from lightning_diffal import UNLABELED, NeighborGraph, Snapshot, batch_query, build_graph, diffuse
from lightning_diffal.selectors import CoverageSelector

LABELED, SIZE, DIMENSIONS = 500, 20, 20
WORK = ("graph", "diffusion", "diffusion query", "coverage query")


@dataclass(frozen=True)
class Case:
    name: str
    points: int
    classes: int = 10
    steps: int = 4
    neighbors: int = 15
    hubs: int = 0
    components: int = 1

    def embeddings(self) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(self.points, DIMENSIONS, generator=generator)
        rows[:, 0] += 100.0 * (torch.arange(self.points) % self.components)
        return rows

    def graph(self) -> NeighborGraph:
        graph = build_graph(self.embeddings(), self.neighbors)
        if not self.hubs:
            return graph
        col = graph.col.view(self.points, -1).clone()
        col[self.hubs :, -self.hubs :] = torch.arange(self.hubs)  # the last neighbors become the hubs
        return NeighborGraph(graph.crow, col.flatten(), graph.weight)

    def labels(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1)
        truth = torch.randint(self.classes, (self.points,), generator=generator)
        labels = torch.full_like(truth, UNLABELED)
        known = torch.randperm(self.points, generator=generator)[:LABELED]
        labels[known] = truth[known]
        return truth, labels


def work_of(case: Case, name: str) -> Callable[[], Any]:
    """What is measured, with its inputs ready."""
    if name == "graph":
        embeddings = case.embeddings()
        return lambda: build_graph(embeddings, case.neighbors)
    graph, (truth, labels) = case.graph(), case.labels()
    if name == "diffusion":
        return lambda: diffuse(graph, labels, case.classes, steps=case.steps)
    if name == "diffusion query":
        return lambda: batch_query(
            graph, labels, case.classes, size=SIZE, steps=case.steps, answer=lambda index: truth[index]
        )
    snapshot = Snapshot(
        labels=labels,
        num_classes=case.classes,
        features=case.embeddings(),
        logits=torch.randn(case.points, case.classes, generator=torch.Generator().manual_seed(2)),
        build_feature_graph=lambda *_, **__: graph,
    )
    return lambda: CoverageSelector(neighbors=case.neighbors)(snapshot, SIZE)


def measure(case: Case, name: str, results: Any) -> None:
    work = work_of(case, name)
    memory, start = peak_memory(), time.process_time()
    work()
    results.put((time.process_time() - start, peak_memory() - memory))


def in_a_process(case: Case, name: str, limit: float) -> str:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=measure, args=(case, name, results))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        return f"more than {limit:.0f} s"
    if process.exitcode != 0 or results.empty():
        return "failed"
    seconds, memory = results.get()
    return f"{seconds:.2f} s, {memory:,.0f} MiB"


def cases(points: int, short: bool) -> list[Case]:
    usual = Case("usual: 10 classes, T = 4, k = 15", points)
    found = [
        usual,
        replace(usual, name="10,000 classes", classes=10_000),
        replace(usual, name="T = 1", steps=1),
        replace(usual, name="T = 20", steps=20),
        replace(usual, name="k = 1", neighbors=1),
        replace(usual, name="k = 500", neighbors=500, points=points // 5),
        replace(usual, name="3 hubs, neighbors of all points", hubs=3),
        replace(usual, name="components of 20 points", components=points // 20, neighbors=10),
    ]
    if not short:
        found.append(replace(usual, name="1 hub, neighbor of 200,000", points=200_000, hubs=1))
        found.append(replace(usual, name="10,000 components", points=200_000, components=10_000, neighbors=10))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, help="by default 50,000, and 10,000 in the short form")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seconds", type=float, default=300.0, help="a measurement may take")
    arguments = parser.parse_args()
    points = arguments.points or (10_000 if arguments.short else 50_000)
    print(f"torch {torch.__version__}, d = {DIMENSIONS}, {LABELED} labels; CPU seconds, memory\n")
    print(f"| case | n | {' | '.join(WORK)} |\n|---|---|---|---|---|---|")
    for case in cases(points, arguments.short):
        cells = [in_a_process(case, name, arguments.seconds) for name in WORK]
        print(f"| {case.name} | {case.points:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
