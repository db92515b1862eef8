"""How much cheaper a query is than with what the paper used: scikit-learn neighbors, SciPy products, argsort.

Every measurement is a process of its own, cold, and the sides take turns; the warm column builds the same graph once
more at the end. Peak memory is the process's own, above what it held once the data was loaded. Both sides must choose
the same points. faiss stands for exact search alone: neither weights nor a query. What we prepare before the first
choice is in the seconds of the query; a choice is the mean of all that follow.

Usage: python benchmarks/bench_query_vs_the_papers_stack.py [--settings mnist cifar10 100k 1m] [--repeats 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hidden_layer import hidden_layer

Result = TypeVar("Result")

CLASSES = 10
SIDES = ("paper", "ours", "faiss")


@dataclass(frozen=True)
class Setting:
    n: int
    d: int
    neighbors: int
    steps: int
    size: int
    mini_batch: int
    shrink_below: float | None
    known: int
    peer_rows: int | None = None
    """Rows the peers' graphs are timed on, and scaled from: exact search costs the same for every row."""
    peer_choices: int | None = None
    """Choices the paper's stack is asked for, with our graph, since it would take hours to build its own."""


SETTINGS = {
    "mnist": Setting(10_000, 50, 10, 5, 20, 1, None, 20),
    "cifar10": Setting(50_000, 20, 20, 4, 200, 10, 0.1, 200),
    "100k": Setting(100_000, 32, 10, 5, 200, 1, None, 20),
    "1m": Setting(1_000_000, 16, 10, 5, 200, 1, None, 20, peer_rows=20_000, peer_choices=10),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measure(arguments.side, SETTINGS[arguments.settings[0]], arguments.folder)))
        return
    print(f"{environment()}\n")
    print("| setting | side | graph s | warm s | query s | ms a choice | graph + query s | peak MiB | same choices |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.settings:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, Path(folder), arguments.repeats)


def compare(name: str, folder: Path, repeats: int) -> None:
    setting = SETTINGS[name]
    embedding, label = hidden_layer(setting.n, setting.d, CLASSES)
    np.savez(folder / "data.npz", embedding=embedding, label=label)
    # Ours goes first where the paper's stack is given our graph.
    sides = ("ours", "paper", "faiss") if setting.peer_choices else SIDES
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            command = [sys.executable, __file__, "--settings", name, "--side", side, "--folder", str(folder)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results[side].append(json.loads(output))
    chosen = [run["indices"] for run in results["paper"] + results["ours"]]
    shortest = min(map(len, chosen))
    same = sum(len({run[place] for run in chosen}) == 1 for place in range(shortest))
    for side in SIDES:
        print(row(name, side, results[side], f"{same}/{shortest}"), flush=True)
    print(ratios(name, results), flush=True)


def row(name: str, side: str, runs: list[dict[str, Any]], same: str) -> str:
    graph = f"{spread([run['graph'] for run in runs])} | {spread([run['warm'] for run in runs])}"
    if side == "faiss":
        return f"| {name} | faiss | {graph} | | | | {spread([run['peak'] for run in runs], 0)} | |"
    query, choice = spread([run["query"] for run in runs]), spread([1000 * run["choice"] for run in runs])
    total, peak = spread([run["graph"] + run["query"] for run in runs]), spread([run["peak"] for run in runs], 0)
    return f"| {name} | {side} | {graph} | {query} | {choice} | {total} | {peak} | {same} |"


def spread(values: list[float], digits: int = 2) -> str:
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def ratios(name: str, results: dict[str, list[dict[str, Any]]]) -> str:
    def median(side: str, *parts: str) -> float:
        return float(statistics.median(sum(run[part] for part in parts) for run in results[side]))

    def ratio(*parts: str) -> float:
        return median("paper", *parts) / median("ours", *parts)

    def to_faiss(part: str) -> float:
        return median("faiss", part) / median("ours", part)

    graph, warm = (f"{ratio(part):.1f} (faiss {to_faiss(part):.1f})" for part in ("graph", "warm"))
    return (
        f"| {name} | **ratio** | {graph} | {warm} | {ratio('query'):.1f} "
        f"| {ratio('choice'):.1f} | {ratio('graph', 'query'):.1f} | {ratio('peak'):.1f} | |"
    )


def environment() -> str:
    import faiss  # noqa: PLC0415
    import scipy  # noqa: PLC0415
    import sklearn  # noqa: PLC0415
    import torch  # noqa: PLC0415

    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, sklearn, scipy, faiss))
    return f"cpu, {torch.get_num_threads()} threads, {versions}"


def measure(side: str, setting: Setting, folder: Path) -> dict[str, Any]:
    """One side in this process: seconds for graph and query, seconds a choice, MiB, and what was chosen."""
    data = np.load(folder / "data.npz")
    embedding, label = data["embedding"], data["label"]
    known = np.full(setting.n, -1)
    first = np.random.default_rng(1).choice(setting.n, setting.known, replace=False)
    known[first] = label[first]
    return {"paper": paper, "ours": ours, "faiss": faiss_graph}[side](embedding, label, known, setting, folder)


def ours(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    from lightning_diffal import batch_query, build_graph  # noqa: PLC0415

    points, labels, truth = torch.from_numpy(embedding), torch.from_numpy(known), torch.from_numpy(label)
    chosen_at: list[float] = []

    def clock(mini_batches: Sequence[int]) -> Iterator[int]:
        for start in mini_batches:
            yield start
            chosen_at.append(time.perf_counter())

    held = peak_memory()
    graph, graph_seconds = timed(lambda: build_graph(points, setting.neighbors))
    query, query_seconds = timed(
        lambda: batch_query(
            graph,
            labels,
            CLASSES,
            size=setting.size,
            mini_batch=setting.mini_batch,
            steps=setting.steps,
            shrink_below=setting.shrink_below,
            answer=lambda indices: truth[indices],
            progress=clock,
        )
    )
    peak = peak_memory() - held
    if setting.peer_choices:
        np.save(folder / "neighbors.npy", graph.col.view(setting.n, setting.neighbors).numpy())
    again = graph_seconds if setting.peer_rows else timed(lambda: build_graph(points, setting.neighbors))[1]
    return {
        "graph": graph_seconds,
        "warm": again,
        "query": query_seconds,
        "choice": float(np.diff(chosen_at).mean()) / setting.mini_batch,
        "peak": peak,
        "indices": query.indices.tolist(),
    }


def paper(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    import scipy.sparse  # noqa: F401, PLC0415, so that no import is timed
    import sklearn.neighbors  # noqa: F401, PLC0415

    held = peak_memory()
    if setting.peer_rows:
        search_seconds = sampled_search(embedding, setting, np.load(folder / "neighbors.npy"))
        (kernel, influence), weight_seconds = timed(lambda: weights(embedding, np.load(folder / "neighbors.npy")))
        graph_seconds = again = search_seconds + weight_seconds
    else:
        (kernel, influence), graph_seconds = timed(lambda: papers_graph(embedding, setting))
    size = setting.peer_choices or setting.size
    indices, query_seconds = timed(lambda: papers_query(kernel, influence, label, known.copy(), setting, size))
    peak = peak_memory() - held
    if not setting.peer_rows:
        again = timed(lambda: papers_graph(embedding, setting))[1]
    choice = query_seconds / size
    return {
        "graph": graph_seconds,
        "warm": again,
        "query": choice * setting.size,
        "choice": choice,
        "peak": peak,
        "indices": indices,
    }


def papers_graph(embedding: Any, setting: Setting) -> tuple[Any, Any]:
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    model = NearestNeighbors(n_neighbors=setting.neighbors).fit(embedding)
    return weights(embedding, model.kneighbors(return_distance=False))


def sampled_search(embedding: Any, setting: Setting, expected: Any) -> float:
    """What scikit-learn would take for all rows, from some of them; its neighbors must be ours."""
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    rows = np.random.default_rng(2).choice(setting.n, setting.peer_rows, replace=False)
    model = NearestNeighbors(n_neighbors=setting.neighbors + 1).fit(embedding)
    found, seconds = timed(lambda: model.kneighbors(embedding[rows], return_distance=False))
    for row, neighbors in zip(rows, found, strict=True):
        if set(neighbors) - {row} != set(expected[row]):
            raise AssertionError(f"scikit-learn and we disagree on the neighbors of {row}")
    return seconds * setting.n / len(rows)


def weights(embedding: Any, neighbors: Any) -> tuple[Any, Any]:
    """M as a SciPy matrix, and Σ_j W_ij."""
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    n, k = neighbors.shape
    wide = embedding.astype(np.float64)
    distance = np.stack([((wide - wide[neighbors[:, j]]) ** 2).sum(axis=1) for j in range(k)], axis=1)
    weight = np.exp(-distance / distance.max(axis=1, keepdims=True))
    influence = weight.sum(axis=1)
    chance = (weight / influence[:, None]).ravel()
    return csr_matrix((chance, neighbors.ravel(), np.arange(0, n * k + 1, k)), (n, n)), influence


def papers_query(kernel: Any, influence: Any, label: Any, known: Any, setting: Setting, size: int) -> list[int]:
    """Algorithm 1 with T full products and an argsort for every mini-batch."""
    n, steps = setting.n, setting.steps
    chosen: list[int] = []
    while len(chosen) < size:
        labeled = np.flatnonzero(known >= 0)
        target = np.where(np.arange(CLASSES) == known[labeled, None], 1.0, -1.0)
        chi = np.zeros((n, CLASSES))
        chi[labeled] = target
        for _ in range(steps):
            chi = kernel @ chi
            chi[labeled] = target
        torn = np.abs(chi).min(axis=1)
        unreached = ~chi.any(axis=1)
        # Unreached points first, by influence; both keys in one, since influence is positive.
        order = np.argsort(np.where(unreached, -influence, torn), kind="stable")
        order = order[known[order] < 0]
        batch = order[: min(setting.mini_batch, size - len(chosen))]
        chosen += batch.tolist()
        known[batch] = label[batch]
        if setting.shrink_below is not None and unreached.sum() < setting.shrink_below * n:
            steps = max(1, steps - 1)
    return chosen


def faiss_graph(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    import faiss  # noqa: PLC0415

    rows = embedding[: setting.peer_rows] if setting.peer_rows else embedding

    def search() -> None:
        index = faiss.IndexFlatL2(setting.d)
        index.add(embedding)
        index.search(rows, setting.neighbors + 1)

    held = peak_memory()
    seconds = timed(search)[1] * setting.n / len(rows)
    peak = peak_memory() - held
    return {"graph": seconds, "warm": seconds if setting.peer_rows else timed(search)[1], "peak": peak}


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def peak_memory() -> float:
    """The most this process has held so far, in MiB; `ru_maxrss` would count what its parent held."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
