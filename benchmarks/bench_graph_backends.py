"""Which backend builds the graph fastest, by n and d: `backend="auto"` follows this table.

All backends run in one process and alternate, after a warm-up; the graphs must be equal. A backend that takes longer
than a minute is left out of sizes with as many dimensions or more.

Usage: python benchmarks/bench_graph_backends.py [--repeats 3] [--neighbors 10] [--max-points 10000]
"""

import argparse
import statistics
from functools import partial

import torch
from measure import timed
from synthetic_embeddings import synthetic_embeddings

from lightning_diffal import NeighborGraph, build_graph
from lightning_diffal.graph.knn.registry import Backend

SIZES = [
    *((1_000, 2), (1_000, 8), (1_000, 64)),
    *((10_000, 2), (10_000, 4), (10_000, 8), (10_000, 64), (10_000, 512)),
    *((50_000, 2), (50_000, 4), (50_000, 8), (50_000, 20)),
]
BACKENDS: list[Backend] = ["torch", "cluster", "faiss"]
MAX_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--neighbors", type=int, default=10)
    parser.add_argument("--max-points", type=int, default=50_000)
    parser.add_argument("--max-dimensions", type=int, default=512)
    arguments = parser.parse_args()
    print(f"cpu, {torch.get_num_threads()} threads, torch {torch.__version__}, k = {arguments.neighbors}; seconds\n")
    print("| n | d | " + " | ".join(BACKENDS) + " |\n|---|---|---|---|---|")
    slow: set[tuple[Backend, int]] = set()
    for n, d in SIZES:
        if n > arguments.max_points or d > arguments.max_dimensions:
            continue
        points = torch.from_numpy(synthetic_embeddings(n, d, classes=10)[0])
        times: dict[Backend, list[float]] = {backend: [] for backend in BACKENDS}
        graphs: dict[Backend, NeighborGraph] = {}
        for _ in range(arguments.repeats + 1):
            for backend in BACKENDS:
                if any(backend == name and d >= dimensions for name, dimensions in slow):
                    continue
                build = partial(build_graph, points, arguments.neighbors, backend=backend)
                graphs[backend], seconds = timed(build)
                times[backend].append(seconds)
                if seconds > MAX_SECONDS:
                    slow.add((backend, d))
        for graph in graphs.values():
            if not torch.equal(graph.col, graphs["torch"].col):
                raise AssertionError(f"the backends disagree at n={n}, d={d}")
        cells = [f"{statistics.median(runs[1:] or runs):.3f}" if runs else "" for runs in times.values()]
        print(f"| {n:,} | {d} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
