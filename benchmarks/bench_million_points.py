"""Does the whole path hold at a million points of 512 dimensions? Seconds and peak memory of each stage.

    python benchmarks/bench_million_points.py                                  # 100,000, 300,000 and 1,000,000 points
    python benchmarks/bench_million_points.py --points 30000 --choices 20      # half a minute

Made-up embeddings of 100 classes, as behind a trained head, are kept in half precision. Each size is a process of its
own, whose memory is limited: graph (approximate by default), the paper's query and the coverage query, each of `size`
points, of which `choices` are made. Rows are printed as stages end, so that a run that is stopped leaves what it
measured. What is prepared once is part of the first choice; a further one should not cost more in a larger pool.

The model's logits are made up, too: the true class with noise, so that the coverage query has something to be sure of.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from measure import peak_memory
from torch import Tensor

from lightning_diffal import UNLABELED, Snapshot, batch_query, build_graph
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import CoverageSelector

DIMENSIONS, NEIGHBORS, CLASSES, LATENT, SHEET = 512, 15, 100, 24, 8
# Rows that are made at a time.
BLOCK = 20_000


def embeddings(points: int) -> tuple[Tensor, Tensor]:
    """(n, 512) in float16 and their classes: sheets in 24 dimensions, bent into 512 by a random ReLU layer."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    label = torch.randint(CLASSES, (points,), generator=generator)
    center, direction = 0.8 * normal(CLASSES, LATENT), normal(CLASSES, SHEET, LATENT) * 0.35
    layer, shift = normal(LATENT, DIMENSIONS) / LATENT**0.5, 0.5 * normal(DIMENSIONS)
    rows = torch.empty(points, DIMENSIONS, dtype=torch.float16)
    for start in range(0, points, BLOCK):
        own = label[start : start + BLOCK]
        sheet = torch.einsum("bs,bsl->bl", normal(len(own), SHEET), direction[own])
        latent = center[own] + sheet + 0.1 * normal(len(own), LATENT)
        bent = (latent @ layer + shift).relu() + 0.02 * normal(len(own), DIMENSIONS)
        rows[start : start + BLOCK] = bent.half()
    return rows, label


class ChoiceTimer(StageTimer):
    """Notes the CPU seconds at the end of each choice."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    def advance(self) -> None:
        self.moments.append(time.process_time())


class Stages:
    """Times stages and prints a row for each."""

    def __init__(self, points: int) -> None:
        self.points = points

    @contextmanager
    def stage(self, name: str, note: Callable[[], str] = str) -> Iterator[ChoiceTimer]:
        reset_peak_memory()
        timer, wall, cpu = ChoiceTimer(), time.perf_counter(), time.process_time()
        yield timer
        took, choices, each = time.process_time() - cpu, timer.moments, ""
        if len(choices) > 1:
            each = f"{choices[0] - cpu:,.1f} s | {1000 * (choices[-1] - choices[0]) / (len(choices) - 1):,.1f} ms"
        print(
            f"| {self.points:,} | {name} | {time.perf_counter() - wall:,.1f} | {took:,.1f} | {peak_memory():,.0f} "
            f"| {each or ' |'} | {note()} |",
            flush=True,
        )


def reset_peak_memory() -> None:
    """Let the peak of this process start from what it holds now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(points: int, size: int, choices: int, arguments: argparse.Namespace) -> None:
    stages, folder, queries, steps = Stages(points), arguments.folder, arguments.queries, arguments.steps
    with stages.stage("make embeddings"):
        rows, truth = embeddings(points)
    labels = torch.full_like(truth, UNLABELED)
    known = torch.randperm(points, generator=torch.Generator().manual_seed(1))[:size]
    labels[known] = truth[known]
    kept = None if folder is None else folder / f"graph_{points}.pt"
    if kept is not None and kept.exists():
        parts = torch.load(kept)
        graph = NeighborGraph(parts["crow"], parts["col"], parts["weight"], recall=parts["recall"])
    else:
        recall: list[float | None] = []
        with stages.stage("graph", note=lambda: f"recall {recall[0]:.3f}" if recall[0] else "exact"):
            graph = build_graph(rows, NEIGHBORS, backend=arguments.backend)
            recall.append(graph.recall)
        if kept is not None:
            parts = {"crow": graph.crow, "col": graph.col, "weight": graph.weight, "recall": graph.recall}
            torch.save(parts, kept)
    if "paper" in queries:
        with stages.stage(f"the paper's query, {choices} choices") as timer:
            query = batch_query(
                graph, labels, CLASSES, size=choices, steps=steps, answer=truth.__getitem__, progress=timer.track
            )
        assert len(query.indices.unique()) == choices
    if "refine" in queries:
        # More labels, so that all points are reached and the query refines.
        more = torch.randperm(points, generator=torch.Generator().manual_seed(2))[: points // 20]
        reached = labels.clone()
        reached[more] = truth[more]
        with stages.stage(f"the paper's query, 5% labeled, {choices} choices") as timer:
            batch_query(
                graph, reached, CLASSES, size=choices, steps=steps, answer=truth.__getitem__, progress=timer.track
            )
    for name, note in (("coverage", f"{size:,} labels"), ("cover", "5% labeled")):
        if name not in queries:
            continue
        logits = torch.randn(points, CLASSES, generator=torch.Generator().manual_seed(3))
        logits[torch.arange(points), truth] += 3
        # What a choice costs depends on n / (labels + asked): the last choices of a query of `size` points.
        count = size - choices + (size if name == "coverage" else points // 20)
        more = torch.randperm(points, generator=torch.Generator().manual_seed(1))[:count]
        labels = torch.full_like(truth, UNLABELED)
        labels[more] = truth[more]
        snapshot = Snapshot(labels=labels, num_classes=CLASSES, embeddings=rows, logits=logits)
        snapshot.graphs["features", NEIGHBORS] = graph
        with stages.stage(f"the coverage query, {note}, {choices} choices") as timer:
            CoverageSelector(neighbors=NEIGHBORS)(snapshot, choices, timer=timer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--size", type=int, default=1_000, help="points asked for, and labels there are")
    parser.add_argument("--choices", type=int, default=100, help="of them that are made in each query")
    parser.add_argument("--backend", default="approximate")
    parser.add_argument("--queries", nargs="+", default=["paper", "refine", "coverage", "cover"])
    parser.add_argument("--steps", type=int, help="T of the diffusion, by default round(log_k n)")
    parser.add_argument("--folder", type=Path, help="where graphs are kept; those that are there are not built again")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gigabytes", type=float, default=16.0, help="that a process may use")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        torch.set_num_threads(arguments.threads)
        limit = int(arguments.gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        measure(arguments.points[0], arguments.size, min(arguments.choices, arguments.size), arguments)
        return
    print(f"torch {torch.__version__}, {arguments.threads} threads, d = {DIMENSIONS}, k = {NEIGHBORS}, c = {CLASSES}\n")
    print(
        "| points | stage | s | CPU s | peak MiB | first choice, CPU | each further, CPU | |\n" + "|---" * 8 + "|",
        flush=True,
    )
    for points in arguments.points:
        command = [sys.executable, __file__, "--here", *sys.argv[1:], "--points", str(points)]
        if subprocess.run(command, check=False).returncode:
            print(f"| {points:,} | failed | | | | | | |", flush=True)


if __name__ == "__main__":
    main()
