"""Check the library on a GPU against the CPU and measure it: none of our machines has one.

    python tools/on_a_gpu.py                  # cuda or mps, whichever there is; about five minutes
    python tools/on_a_gpu.py --device cpu     # to try the script

Every search backend and every selector runs on the device and on the CPU with the same input. Exact graphs must have
the same edges, approximate ones at least .97 of them, and the selectors should choose the same points: where two points
score alike, rounding may decide otherwise. Please paste the last line of the output into an issue.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from lightning_diffal import UNLABELED, NeighborGraph, Snapshot, __version__, build_graph
from lightning_diffal.graph.knn.approximate_search import MIN_RECALL
from lightning_diffal.graph.knn.registry import BACKENDS
from lightning_diffal.selectors import StochasticPasses
from lightning_diffal.selectors.uncertainty import entropy
from lightning_diffal.studies.definitions import STUDIES
from lightning_diffal.studies.selector_registry import SELECTORS

Result = TypeVar("Result")
CPU = torch.device("cpu")
CLASSES, LATENT, LABELED, PASSES = 10, 16, 100, 5
NEIGHBORS = 15
# On the CPU, torch-cluster's kd-tree takes minutes in hundreds of dimensions.
KD_TREE_DIMENSIONS = 20


def make_snapshot(n: int, d: int) -> Snapshot:
    """Ten classes in a few directions, bent into d dimensions, as behind a trained layer."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(CLASSES, (n,), generator=generator)
    center = 2 * torch.randn(CLASSES, LATENT, generator=generator)
    latent = center[truth] + torch.randn(n, LATENT, generator=generator)
    embeddings = (latent @ torch.randn(LATENT, d, generator=generator)).relu()
    embeddings += 0.1 * torch.randn(n, d, generator=generator)
    logits = -torch.cdist(latent, center)
    labels = torch.full((n,), UNLABELED)
    labels[: min(LABELED, n // 4)] = truth[: min(LABELED, n // 4)]
    passes = (logits + torch.randn(PASSES, n, CLASSES, generator=generator)).softmax(dim=2)
    stochastic = StochasticPasses(passes.mean(dim=0), entropy(passes).mean(dim=0))
    return Snapshot(
        labels=labels,
        num_classes=CLASSES,
        embeddings=embeddings,
        features=embeddings.clone(),
        logits=logits,
        stochastic=stochastic,
    )


def moved(snapshot: Snapshot, device: torch.device) -> Snapshot:
    parts: dict[str, Any] = {
        name: getattr(snapshot, name).to(device) for name in ("labels", "embeddings", "features", "logits")
    }
    passes = snapshot.stochastic
    assert passes is not None
    stochastic = StochasticPasses(passes.probabilities.to(device), passes.expected_entropy.to(device))
    return Snapshot(num_classes=snapshot.num_classes, stochastic=stochastic, **parts)


def choose(name: str, size: int, snapshot: Snapshot) -> Tensor:
    """The choice of a selector. All devices draw from the CPU's generator."""
    selector = SELECTORS[name](STUDIES["mnist-fc"])
    return selector(snapshot, size, generator=torch.Generator().manual_seed(0)).indices.cpu()


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """The second of two calls: the first one compiles kernels and fills caches."""
    for _ in range(2):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
    return time.perf_counter() - start


def attempt(work: Callable[[], Result]) -> Result | str:
    """What the work returns, or what went wrong: one failure should not hide the results of the others."""
    try:
        return work()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:150]


def check_graph(backend: Any, points: Tensor, device: torch.device) -> str:
    """Whether the graph is the same as the CPU's, else how many of its edges were found."""
    expected = build_graph(points, NEIGHBORS, backend="torch")
    found = build_graph(points.to(device), NEIGHBORS, backend=backend)
    if torch.equal(found.col.cpu(), expected.col) and torch.allclose(found.weight.cpu(), expected.weight):
        return "same"
    rows = expected.col.view(-1, NEIGHBORS, 1), found.col.cpu().view(-1, 1, NEIGHBORS)
    share = float((rows[0] == rows[1]).any(dim=2).double().mean())
    enough = share >= MIN_RECALL and not BACKENDS[backend].exact
    return f"{'enough' if enough else 'DIFFERENT'}: {share:.4f} of the edges"


def check_selector(name: str, size: int, snapshot: Snapshot, on_device: Snapshot) -> str:
    """Whether the choice is the same as the CPU's, else how many points were chosen on both."""
    expected, found = choose(name, size, snapshot), choose(name, size, on_device)
    if torch.equal(expected, found):
        return "same"
    return f"DIFFERENT: {int(torch.isin(found, expected).sum())} of {size} points in common"


def installed_backends() -> list[str]:
    return [name for name, backend in BACKENDS.items() if backend.can_be_imported()]


def print_speeds(sizes: list[int], dimensions: int, size: int, device: torch.device) -> dict[str, float]:
    """One row for each backend and selector; returns the device's seconds at the largest size."""
    devices = [device] if device == CPU else [device, CPU]
    header = [f"n = {n:,}, {where}" for n in sizes for where in devices]
    print(f"\nSeconds, d = {dimensions}\n\n| work | {' | '.join(header)} |\n|---{'|---' * len(header)}|")
    snapshots = {(n, where): moved(make_snapshot(n, dimensions), where) for n in sizes for where in devices}
    works: dict[str, Callable[[Snapshot], Any]] = {
        f"graph, {name}": partial(graph_of, backend=name) for name in installed_backends()
    }
    works |= {f"query, {name}": partial(choose, name, size) for name in SELECTORS}
    largest: dict[str, float] = {}
    for work, call in works.items():
        cells = []
        for (n, where), snapshot in snapshots.items():
            slow = work == "graph, cluster" and where == CPU and dimensions > KD_TREE_DIMENSIONS
            taken = "" if slow else attempt(partial(seconds, partial(call, snapshot), where))
            cells.append(taken if isinstance(taken, str) else f"{taken:.3f}")
            if where == device and n == sizes[-1] and not isinstance(taken, str):
                largest[work] = round(taken, 3)
        print(f"| {work} | {' | '.join(cells)} |", flush=True)
    return largest


def graph_of(snapshot: Snapshot, backend: Any) -> NeighborGraph:
    assert snapshot.embeddings is not None
    return build_graph(snapshot.embeddings, NEIGHBORS, backend=backend)


def default_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--check", type=int, default=3_000, help="points of the comparison with the CPU")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000], help="points of the speeds")
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--query", type=int, default=100, help="points of a query")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"lightning-diffal {__version__}, torch {torch.__version__}, {device.type}: {name}")
    snapshot = make_snapshot(arguments.check, KD_TREE_DIMENSIONS)
    on_device = moved(snapshot, device)
    points = snapshot.embeddings
    assert points is not None
    print("\n| on the device, beside the CPU | result |\n|---|---|")
    checks = {f"graph, {each}": partial(check_graph, each, points, device) for each in installed_backends()}
    checks |= {
        f"query, {each}": partial(check_selector, each, arguments.query, snapshot, on_device) for each in SELECTORS
    }
    results = {}
    for check, call in checks.items():
        results[check] = attempt(call)
        print(f"| {check} | {results[check]} |", flush=True)
    speeds = print_speeds(sorted(arguments.sizes), arguments.dimensions, arguments.query, device)
    wrong = {check: result for check, result in results.items() if not result.startswith(("same", "enough"))}
    line: dict[str, Any] = {"version": __version__, "torch": torch.__version__, "device": f"{device.type}: {name}"}
    line |= {"agree": f"{len(results) - len(wrong)} of {len(results)}", "wrong": wrong, "seconds": speeds}
    print("\n" + json.dumps(line))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
