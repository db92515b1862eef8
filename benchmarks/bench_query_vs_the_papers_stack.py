"""How much cheaper a query is than with what the paper used: scikit-learn neighbors, SciPy products, argsort.

Every measurement is a process of its own, cold, and the sides take turns. Peak memory is the process's own, above what
it held once the data was loaded. Both sides must choose the same points.

Usage: python benchmarks/bench_query_vs_the_papers_stack.py [--settings mnist cifar10 100k 1m] [--repeats 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hidden_layer import hidden_layer

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
    print("| setting | side | graph s | query s | ms a choice | total s | peak MiB | same choices |")
    print("|---|---|---|---|---|---|---|---|")
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
    graph = spread([run["graph"] for run in runs])
    if side == "faiss":
        return f"| {name} | faiss exact | {graph} | | | | {spread([run['peak'] for run in runs], 0)} | |"
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

    faiss = median("faiss", "graph") / median("ours", "graph")
    return (
        f"| {name} | **ratio** | {ratio('graph'):.1f} (faiss {faiss:.1f}) | {ratio('query'):.1f} "
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
    held, started = peak_memory(), time.perf_counter()
    graph = build_graph(points, setting.neighbors)
    built = time.perf_counter()
    query = batch_query(
        graph,
        labels,
        CLASSES,
        size=setting.size,
        mini_batch=setting.mini_batch,
        steps=setting.steps,
        shrink_below=setting.shrink_below,
        answer=lambda indices: truth[indices],
    )
    seconds = time.perf_counter() - built
    peak = peak_memory() - held
    if setting.peer_choices:
        np.save(folder / "neighbors.npy", graph.col.view(setting.n, setting.neighbors).numpy())
    return {
        "graph": built - started,
        "query": seconds,
        "choice": seconds / setting.size,
        "peak": peak,
        "indices": query.indices.tolist(),
    }


def paper(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    from scipy.sparse import csr_matrix  # noqa: PLC0415
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    n, k = setting.n, setting.neighbors
    held, started = peak_memory(), time.perf_counter()
    model = NearestNeighbors(n_neighbors=k).fit(embedding)
    if setting.peer_rows:
        rows = np.random.default_rng(2).choice(n, setting.peer_rows, replace=False)
        found = model.kneighbors(embedding[rows], n_neighbors=k + 1, return_distance=False)
        graph_seconds = (time.perf_counter() - started) * n / setting.peer_rows
        neighbors = np.load(folder / "neighbors.npy")
        for row_found, row in zip(found, rows, strict=True):
            if set(row_found) - {row} != set(neighbors[row]):
                raise AssertionError(f"scikit-learn and we disagree on the neighbors of {row}")
    else:
        neighbors = model.kneighbors(return_distance=False)
        graph_seconds = time.perf_counter() - started
    started = time.perf_counter()
    wide = embedding.astype(np.float64)
    distance = np.stack([((wide - wide[neighbors[:, j]]) ** 2).sum(axis=1) for j in range(k)], axis=1)
    weight = np.exp(-distance / distance.max(axis=1, keepdims=True))
    influence = weight.sum(axis=1)
    kernel = csr_matrix(((weight / influence[:, None]).ravel(), neighbors.ravel(), np.arange(0, n * k + 1, k)), (n, n))
    graph_seconds += time.perf_counter() - started

    size, steps = setting.peer_choices or setting.size, setting.steps
    chosen: list[int] = []
    known = known.copy()
    started = time.perf_counter()
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
    choice = (time.perf_counter() - started) / size
    peak = peak_memory() - held
    return {"graph": graph_seconds, "query": choice * setting.size, "choice": choice, "peak": peak, "indices": chosen}


def faiss_graph(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    import faiss  # noqa: PLC0415

    held, started = peak_memory(), time.perf_counter()
    index = faiss.IndexFlatL2(setting.d)
    index.add(embedding)
    rows = embedding[: setting.peer_rows] if setting.peer_rows else embedding
    index.search(rows, setting.neighbors + 1)
    seconds = (time.perf_counter() - started) * setting.n / len(rows)
    return {"graph": seconds, "peak": peak_memory() - held}


def peak_memory() -> float:
    """The most this process has held so far, in MiB; `ru_maxrss` would count what its parent held."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
