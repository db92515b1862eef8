"""How fast the exact graph of 512 and more dimensions is, beside other exact searches.

All sides run in one process and alternate; the neighbors must be equal (but for ties). The others compute all distances
of a row: with --peer-rows their time is measured on so many rows and multiplied. CPU seconds are those of all threads,
and say more than seconds on a machine that others use.

Usage: python benchmarks/bench_high_dimensions.py --data DIR [--repeats 3] [--pools "white noise"] [--peer-rows 20000]
DIR holds cifar10_efficientnet.npz (x_train) and mnist.npz (x_train, y_train).
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import faiss
import torch
from high_dimensional_data import NAMES, load
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from lightning_diffal import build_graph

K = 15


def ours(points: Tensor, rows: int) -> Tensor:
    return build_graph(points, K, backend="exact").col.view(-1, K)[:rows]


def by_faiss(points: Tensor, rows: int) -> Tensor:
    index = faiss.IndexFlatL2(points.shape[1])
    index.add(points.numpy())
    return torch.from_numpy(index.search(points[:rows].numpy(), K + 1)[1])


def by_torch(points: Tensor, rows: int) -> Tensor:
    half_square = points.square().sum(dim=1) / 2
    parts = [
        torch.addmm(half_square, part, points.T, alpha=-1).topk(K + 1, largest=False).indices
        for part in points[:rows].split(1024)
    ]
    return torch.cat(parts)


def by_scikit_learn(points: Tensor, rows: int) -> Tensor:
    search = NearestNeighbors(n_neighbors=K + 1, algorithm="brute", n_jobs=-1).fit(points.numpy())
    return torch.from_numpy(search.kneighbors(points[:rows].numpy(), return_distance=False))


PEERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "faiss": by_faiss,
    "torch addmm + topk": by_torch,
    "scikit-learn": by_scikit_learn,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-rows", type=int)
    parser.add_argument("--pools", nargs="+", default=["efficientnet", "trained head", "white noise"], choices=NAMES)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(torch.get_num_threads())
    print(f"cpu, {torch.get_num_threads()} threads, torch {torch.__version__}, k = {K}; median seconds (CPU seconds)\n")
    print("| pool | n | d | " + " | ".join([*PEERS, "**ours**"]) + " | fastest other / ours |")
    print("|---" * (len(PEERS) + 5) + "|")
    for name in arguments.pools:
        points = load(name, arguments.data)
        n, d = points.shape
        rows = min(n, arguments.peer_rows or n)
        times: dict[str, list[tuple[float, float]]] = {side: [] for side in (*PEERS, "ours")}
        for _ in range(arguments.repeats):
            found: dict[str, Tensor] = {}
            for side, runs in times.items():
                start, cpu = time.perf_counter(), time.process_time()
                found[side] = ours(points, rows) if side == "ours" else PEERS[side](points, rows)
                factor = 1.0 if side == "ours" else n / rows
                runs.append((factor * (time.perf_counter() - start), factor * (time.process_time() - cpu)))
            same = float((found["ours"][:, :, None] == found["faiss"][:, None]).any(dim=2).float().mean())
            if same < 0.9999:
                raise AssertionError(f"{name}: only {same:.4%} of the neighbors are those of faiss")
        wall, cpu_seconds = ({side: median(one[i] for one in runs) for side, runs in times.items()} for i in (0, 1))
        ratio = min(wall[side] for side in PEERS) / wall["ours"]
        ratio_cpu = min(cpu_seconds[side] for side in PEERS) / cpu_seconds["ours"]
        cells = [f"{wall[side]:.1f} ({cpu_seconds[side]:.1f})" for side in times]
        print(f"| {name} | {n:,} | {d:,} | " + " | ".join(cells) + f" | {ratio:.1f} ({ratio_cpu:.1f}) |", flush=True)


if __name__ == "__main__":
    main()
