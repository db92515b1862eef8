"""How much sooner a query is made by two ranks than by one, a thread each: embedding, graph, diffusion and choice.

The CIFAR-10 setting of the paper: 50,000 points, 20 hidden units, k = 20, T = 4, 200 points in mini-batches of 10, with
δ = 0.1 as there, where all choices explore; and from 5,000 labels without δ, where they refine and χ is exchanged.
The graph is that of points like those of a trained hidden layer; what is embedded are inputs of 512 numbers, through a
network of the paper's size. All ranks together and rank 0 alone take turns in the same processes; whoever is not asked
sleeps. Both must choose the same points. Seconds are those of the clock, and in the last columns those that the busiest
rank has computed, which neither waiting nor what else the machine does is part of.

Usage: python benchmarks/bench_ranks.py [--ranks 2] [--repeats 7] [--points 50000]
"""

import argparse
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hidden_layer import hidden_layer
from torch import Tensor, nn

from lightning_diffal import UNLABELED, batch_query, build_graph
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.row_partition import Share

CLASSES, WIDTH, INPUTS = 10, 20, 512
NEIGHBORS, STEPS, SIZE, MINI_BATCH = 20, 4, 200, 10
STAGES = ("embedding", "graph", "query, exploring", "query, refining")


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
    runs: dict[str, list[Run]] = {"together": [], "alone": []}
    for repeat in range(arguments.repeats + 1):
        for side, finished in runs.items():
            ranks = Ranks.of_group() if side == "together" else SINGLE_PROCESS
            dist.barrier()
            run = Run(ranks, pool) if side == "together" or rank == 0 else None
            every: list[Any] = [None] * arguments.ranks
            dist.all_gather_object(every, run)
            if repeat > 0:  # the first is for warming up
                finished.append(Run.slowest([one for one in every if one is not None]))
    if rank == 0:
        print(table(arguments, runs))
    dist.destroy_process_group()


class Pool:
    """The points, their classes, and what is embedded."""

    def __init__(self, size: int) -> None:
        embeddings, classes = hidden_layer(size, WIDTH, CLASSES)
        self.embeddings, self.classes = torch.from_numpy(embeddings), torch.from_numpy(classes)
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(size, INPUTS, generator=generator)
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(INPUTS, INPUTS), nn.ReLU(), nn.Linear(INPUTS, WIDTH), nn.ReLU())
        self.order = torch.randperm(size, generator=generator)

    def labels(self, count: int) -> Tensor:
        labels = torch.full_like(self.classes, UNLABELED)
        labels[self.order[:count]] = self.classes[self.order[:count]]
        return labels


class Run:
    """One query, its stages timed."""

    def __init__(self, ranks: Ranks, pool: Pool) -> None:
        self.seconds: dict[str, float] = {}
        self.computing: dict[str, float] = {}
        self.sent: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.ranks = ranks
        share = Share(ranks, len(pool.embeddings))
        with torch.no_grad():
            parts = self.timed("embedding", lambda: embedded(pool, share))
        graph = self.timed("graph", lambda: build_graph(pool.embeddings, NEIGHBORS, ranks=ranks))
        fresh = build_graph(pool.embeddings, NEIGHBORS, ranks=ranks)  # nothing of it is prepared yet
        options = {"size": SIZE, "mini_batch": MINI_BATCH, "steps": STEPS, "answer": lambda i: pool.classes[i]}
        explored = self.timed(
            "query, exploring",
            lambda: batch_query(graph, pool.labels(200), CLASSES, shrink_below=0.1, **options),  # type: ignore[arg-type]
        )
        refined = self.timed(
            "query, refining",
            lambda: batch_query(fresh, pool.labels(len(pool.classes) // 10), CLASSES, **options),  # type: ignore[arg-type]
        )
        self.chosen = [explored.indices.tolist(), refined.indices.tolist(), [float(parts.double().sum())]]
        self.refining = int(refined.reached.sum())
        del self.ranks  # a process group cannot be sent

    def timed(self, stage: str, act: Callable[[], Any]) -> Any:
        sent, calls = self.ranks.sent, self.ranks.calls
        clock, processor = time.perf_counter(), time.process_time()
        result = act()
        self.computing[stage] = time.process_time() - processor
        self.seconds[stage] = time.perf_counter() - clock
        self.sent[stage], self.calls[stage] = self.ranks.sent - sent, self.ranks.calls - calls
        return result

    @staticmethod
    def slowest(runs: list["Run"]) -> "Run":
        """What all ranks together took, who must have chosen the same."""
        first = runs[0]
        for other in runs[1:]:
            if other.chosen != first.chosen:
                raise AssertionError("the ranks chose different points")
            for mine, theirs in zip(vars(first).values(), vars(other).values(), strict=True):
                if isinstance(mine, dict):
                    mine.update({stage: max(mine[stage], theirs[stage]) for stage in mine})
        return first


def embedded(pool: Pool, share: Share) -> Tensor:
    return share.ranks.joined(torch.cat([pool.network(part) for part in share.of(pool.inputs).split(512)]))


def table(arguments: argparse.Namespace, runs: dict[str, list[Run]]) -> str:
    if any(run.chosen[:2] != runs["alone"][0].chosen[:2] for run in runs["alone"] + runs["together"]):
        raise AssertionError("together and alone chose different points")
    lines = [
        f"cpu, gloo, torch {torch.__version__}, {arguments.ranks} ranks with a thread each against one, n = "
        f"{arguments.points:,}, d = {WIDTH}, k = {NEIGHBORS}, T = {STEPS}, B = {SIZE}, P = {MINI_BATCH}; medians of "
        f"{arguments.repeats} pairs and their range; {runs['alone'][0].refining} of {SIZE} choices of the last query "
        "refine; all choices equal\n",
        "| stage | one rank, s | together, s | times | MB sent | collectives | computing: one, together, times |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in (*STAGES, "embedding, graph and exploring query"):
        stages = STAGES[:3] if name not in STAGES else (name,)

        def of(side: str, what: str, stages: tuple[str, ...] = stages) -> list[float]:
            return [sum(getattr(run, what)[stage] for stage in stages) for run in runs[side]]

        clock = [of(side, "seconds") for side in ("alone", "together")]
        processor = [of(side, "computing") for side in ("alone", "together")]
        sent, calls = of("together", "sent")[0] / 1e6, of("together", "calls")[0]
        lines.append(
            f"| {name} | {spread(clock[0])} | {spread(clock[1])} | {spread(ratios(*clock))} | {sent:.1f} | {calls:.0f} "
            f"| {spread(processor[0], None)}, {spread(processor[1], None)}, {spread(ratios(*processor))} |"
        )
    return "\n".join(lines)


def ratios(one: list[float], several: list[float]) -> list[float]:
    return [alone / together for alone, together in zip(one, several, strict=True)]


def spread(values: list[float], wide: bool | None = True) -> str:
    middle = f"{statistics.median(values):.2f}"
    return f"{middle} ({min(values):.2f} to {max(values):.2f})" if wide else middle


if __name__ == "__main__":
    main()
