"""How much faster several ranks are than one, a thread each: embedding and search are distributed, the query is not.

The CIFAR-10 setting of the paper: 50,000 points, 20 hidden units, k = 20, T = 4, 200 points in mini-batches of 10. The
graph is that of synthetic embeddings; the embedding pass runs inputs of 512 numbers through a network of the paper's
size. All ranks and rank 0 alone alternate in the same processes; graphs and choices must be equal. Processor seconds
are those of the busiest rank, without waiting and without other programs.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_several_ranks_vs_one.py [--ranks 2] [--repeats 7] [--points 50000]
"""

import argparse
import socket
import statistics
import time
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from measure import median_and_range
from synthetic_embeddings import synthetic_embeddings
from torch import Tensor, nn

from lightning_diffal import UNLABELED, batch_query, build_graph
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks

CLASSES, WIDTH, INPUTS = 10, 20, 512
NEIGHBORS, STEPS, SIZE, MINI_BATCH = 20, 4, 200, 10
STAGES = ("embedding", "graph", "query")
Times = dict[str, tuple[float, float]]  # of each stage, by the clock and of the processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--points", type=int, default=50_000)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    mp.spawn(work, (arguments, address), nprocs=arguments.ranks)  # type: ignore[attr-defined]


def work(rank: int, arguments: argparse.Namespace, address: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=arguments.ranks)
    pool = Pool(arguments.points)
    runs: dict[str, list[Times]] = {"one": [], "several": []}
    results = []
    for _ in range(arguments.repeats + 1):
        for side, finished in runs.items():
            dist.barrier()
            times, result = None, None
            if side == "several" or rank == 0:
                times, result = run(Ranks.of_group() if side == "several" else SINGLE_PROCESS, pool)
            gathered: list[Any] = [None] * arguments.ranks
            dist.all_gather_object(gathered, (times, result))
            results += [result for _, result in gathered if result is not None]
            spent = [times for times, _ in gathered if times is not None]
            finished.append({stage: slowest([times[stage] for times in spent]) for stage in STAGES})
    if rank == 0:
        if any(result != results[0] for result in results):
            raise AssertionError("graphs or choices differ")
        # The first run is for warming up.
        print(table(arguments, runs["one"][1:], runs["several"][1:]))
    dist.destroy_process_group()


class Pool:
    """The points, their classes, and the inputs to embed."""

    def __init__(self, size: int) -> None:
        embeddings, classes = synthetic_embeddings(size, WIDTH, CLASSES)
        self.embeddings, self.classes = torch.from_numpy(embeddings), torch.from_numpy(classes)
        self.inputs = torch.randn(size, INPUTS, generator=torch.Generator().manual_seed(0))
        self.network = nn.Sequential(nn.Linear(INPUTS, INPUTS), nn.ReLU(), nn.Linear(INPUTS, WIDTH), nn.ReLU())
        self.labels = torch.full_like(self.classes, UNLABELED)
        self.labels[: size // 10] = self.classes[: size // 10]

    def answer(self, indices: Tensor) -> Tensor:
        return self.classes[indices]


@torch.no_grad()
def run(ranks: Ranks, pool: Pool) -> tuple[Times, tuple[int, list[int]]]:
    """The seconds of each stage, and what all ranks must agree on: the sum of the graph's columns and the choice."""
    clock = [now()]
    own = pool.inputs[ranks.own_rows(len(pool.inputs))]
    ranks.all_gather_cat(torch.cat([pool.network(part) for part in own.split(512)]))
    clock.append(now())
    graph = build_graph(pool.embeddings, NEIGHBORS, backend="torch", ranks=ranks)
    clock.append(now())
    query = batch_query(graph, pool.labels, CLASSES, size=SIZE, mini_batch=MINI_BATCH, steps=STEPS, answer=pool.answer)
    clock.append(now())
    positions = torch.arange(1, len(graph.col) + 1)
    spent = [(end[0] - start[0], end[1] - start[1]) for start, end in pairwise(clock)]
    return dict(zip(STAGES, spent, strict=True)), (int((graph.col * positions).sum()), query.indices.tolist())


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def slowest(times: list[tuple[float, float]]) -> tuple[float, float]:
    return max(clock for clock, _ in times), max(processor for _, processor in times)


def table(arguments: argparse.Namespace, one: list[Times], several: list[Times]) -> str:
    lines = [
        f"cpu, gloo, torch {torch.__version__}, {arguments.ranks} ranks with a thread each against one, n = "
        f"{arguments.points:,}, d = {WIDTH}, k = {NEIGHBORS}, T = {STEPS}, B = {SIZE}, P = {MINI_BATCH}; medians of "
        f"{arguments.repeats} pairs and their range; graphs and choices equal\n",
        f"| stage | one rank, s | {arguments.ranks} ranks, s | speedup | processor: one, {arguments.ranks}, speedup |",
        "|---|---|---|---|---|",
    ]
    for name, stages in [*((stage, [stage]) for stage in STAGES), ("all", list(STAGES))]:
        clock, processor = (
            [[sum(times[stage][kind] for stage in stages) for times in side] for side in (one, several)]
            for kind in (0, 1)
        )
        seconds = " | ".join(map(median_and_range, (*clock, speedup(*clock))))
        one_processor, several_processors = map(statistics.median, processor)
        lines.append(
            f"| {name} | {seconds} | {one_processor:.2f}, {several_processors:.2f}, "
            f"{median_and_range(speedup(*processor))} |"
        )
    return "\n".join(lines)


def speedup(one: list[float], several: list[float]) -> list[float]:
    return [before / after for before, after in zip(one, several, strict=True)]


if __name__ == "__main__":
    main()
