"""How much cheaper a query is than with the paper's stack: scikit-learn neighbors, SciPy products, argsort.

Every measurement is a process of its own, cold, and the sides alternate; the warm column builds the same graph once
more at the end. Peak memory is above that of the loaded data. Both sides must choose the same points. faiss stands for
exact search alone, without weights and query. Our seconds of the query include what is prepared before the first
choice; a choice is the mean of all that follow.

Usage: python benchmarks/bench_query_vs_the_papers_stack.py [--settings mnist cifar10 100k 1m] [--repeats 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import median_and_range, peak_memory, timed
from synthetic_embeddings import synthetic_embeddings

CLASSES = 10
SIDES = ("paper", "ours", "faiss")
# What is measured, and the digits shown; the choice is in milliseconds.
COLUMNS = {"graph": 2, "warm": 2, "query": 2, "choice": 2, "total": 2, "peak": 0}


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
    """Rows on which the peers' graphs are timed; exact search costs the same for every row."""
    peer_choices: int | None = None
    """Choices of the paper's stack, with our graph, since it would take hours to build its own."""


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
    embedding, label = synthetic_embeddings(setting.n, setting.d, CLASSES)
    np.savez(folder / "data.npz", embedding=embedding, label=label)
    # Ours goes first where the paper's stack uses our graph.
    sides = ("ours", "paper", "faiss") if setting.peer_choices else SIDES
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            command = [sys.executable, __file__, "--settings", name, "--side", side, "--folder", str(folder)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results[side].append(json.loads(output))
    chosen = [run["indices"] for run in results["paper"] + results["ours"]]
    shortest = min(map(len, chosen))
    same = sum(len({indices[i] for indices in chosen}) == 1 for i in range(shortest))
    for side in SIDES:
        cells = [
            median_and_range([run[column] for run in results[side]], digits) if column in results[side][0] else ""
            for column, digits in COLUMNS.items()
        ]
        agreement = "" if side == "faiss" else f"{same}/{shortest}"
        print(f"| {name} | {side} | {' | '.join(cells)} | {agreement} |", flush=True)
    ratios = " | ".join(ratio(column, results) for column in COLUMNS)
    print(f"| {name} | **ratio** | {ratios} | |", flush=True)


def ratio(column: str, results: dict[str, list[dict[str, Any]]]) -> str:
    """The paper's median divided by ours, and that of faiss where it is the graph's."""
    median = {side: statistics.median(run.get(column, 0.0) for run in runs) for side, runs in results.items()}
    faiss = f" (faiss {median['faiss'] / median['ours']:.1f})" if column in ("graph", "warm") else ""
    return f"{median['paper'] / median['ours']:.1f}{faiss}"


def environment() -> str:
    import faiss  # noqa: PLC0415
    import scipy  # noqa: PLC0415
    import sklearn  # noqa: PLC0415
    import torch  # noqa: PLC0415

    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, sklearn, scipy, faiss))
    return f"cpu, {torch.get_num_threads()} threads, {versions}"


def measure(side: str, setting: Setting, folder: Path) -> dict[str, Any]:
    """One side in this process: the columns of the table and the chosen indices."""
    data = np.load(folder / "data.npz")
    embedding, label = data["embedding"], data["label"]
    known = np.full(setting.n, -1)
    first = np.random.default_rng(1).choice(setting.n, setting.known, replace=False)
    known[first] = label[first]
    result = {"paper": paper, "ours": ours, "faiss": faiss_graph}[side](embedding, label, known, setting, folder)
    return result | {"total": result["graph"] + result["query"]} if "query" in result else result


def ours(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    from lightning_diffal import batch_query, build_graph  # noqa: PLC0415

    points, labels, truth = torch.from_numpy(embedding), torch.from_numpy(known), torch.from_numpy(label)
    chosen_at: list[float] = []

    def clock(mini_batches: Sequence[int]) -> Iterator[int]:
        for start in mini_batches:
            yield start
            chosen_at.append(time.perf_counter())

    before = peak_memory()
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
    peak = peak_memory() - before
    if setting.peer_choices:
        np.save(folder / "neighbors.npy", graph.col.view(setting.n, setting.neighbors).numpy())
    warm = graph_seconds if setting.peer_rows else timed(lambda: build_graph(points, setting.neighbors))[1]
    return {
        "graph": graph_seconds,
        "warm": warm,
        "query": query_seconds,
        "choice": 1000 * float(np.diff(chosen_at).mean()) / setting.mini_batch,
        "peak": peak,
        "indices": query.indices.tolist(),
    }


def paper(embedding: Any, label: Any, known: Any, setting: Setting, folder: Path) -> dict[str, Any]:
    import scipy.sparse  # noqa: F401, PLC0415, so that no import is timed
    import sklearn.neighbors  # noqa: F401, PLC0415

    before = peak_memory()
    if setting.peer_rows:
        search_seconds = sampled_search(embedding, setting, np.load(folder / "neighbors.npy"))
        (kernel, influence), weight_seconds = timed(lambda: weights(embedding, np.load(folder / "neighbors.npy")))
        graph_seconds = warm = search_seconds + weight_seconds
    else:
        (kernel, influence), graph_seconds = timed(lambda: papers_graph(embedding, setting))
    size = setting.peer_choices or setting.size
    indices, query_seconds = timed(lambda: papers_query(kernel, influence, label, known.copy(), setting, size))
    peak = peak_memory() - before
    if not setting.peer_rows:
        warm = timed(lambda: papers_graph(embedding, setting))[1]
    choice = query_seconds / size
    seconds = {"graph": graph_seconds, "warm": warm, "query": choice * setting.size, "choice": 1000 * choice}
    return seconds | {"peak": peak, "indices": indices}


def papers_graph(embedding: Any, setting: Setting) -> tuple[Any, Any]:
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    model = NearestNeighbors(n_neighbors=setting.neighbors).fit(embedding)
    return weights(embedding, model.kneighbors(return_distance=False))


def sampled_search(embedding: Any, setting: Setting, expected: Any) -> float:
    """The seconds of scikit-learn for all rows, extrapolated from a sample; its neighbors must equal ours."""
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
    probability = (weight / influence[:, None]).ravel()
    return csr_matrix((probability, neighbors.ravel(), np.arange(0, n * k + 1, k)), (n, n)), influence


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
        score = np.abs(chi).min(axis=1)
        unreached = ~chi.any(axis=1)
        # Unreached points first, by influence; both keys in one, since influence is positive.
        order = np.argsort(np.where(unreached, -influence, score), kind="stable")
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

    before = peak_memory()
    seconds = timed(search)[1] * setting.n / len(rows)
    peak = peak_memory() - before
    return {"graph": seconds, "warm": seconds if setting.peer_rows else timed(search)[1], "peak": peak}


if __name__ == "__main__":
    main()
