"""How fast an approximate graph of many dimensions is at a recall of 0.97, beside other libraries and the exact graph.

Each library is given more and more work until the recall, measured here on 500 random rows, reaches 0.97; the first
setting that does is shown, with the time of that setting alone. faiss's exact index is measured on --peer-rows rows and
multiplied. Each time is of a single run; CPU seconds are those of all threads. hnswlib and pynndescent are left out
where they are not installed; `pip install hnswlib pynndescent` installs them.

Usage: python benchmarks/bench_approximate.py --data DIR [--pools "made-up"] [--points N] [--peer-rows 5000] [--ours]
DIR holds mnist.npz (x_train, y_train).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import torch
from high_dimensional_data import NAMES, load
from torch import Tensor

from lightning_diffal import build_graph

K = 15
MIN_RECALL = 0.97
Search = Callable[[], Any]


def ours(points: Tensor) -> Iterator[tuple[str, Search]]:
    yield '`backend="approximate"`', lambda: build_graph(points, K, backend="approximate").col.view(-1, K)


def our_exact(points: Tensor) -> Iterator[tuple[str, Search]]:
    yield '`backend="exact"`', lambda: build_graph(points, K, backend="exact").col.view(-1, K)


def faiss_index(points: Tensor, description: str, **settings: int) -> Tensor:
    index: Any = faiss.index_factory(points.shape[1], description)
    if "efConstruction" in settings:
        index.hnsw.efConstruction = settings.pop("efConstruction")
    index.train(points.numpy())
    index.add(points.numpy())
    for name, value in settings.items():
        faiss.ParameterSpace().set_index_parameter(index, name, value)
    return torch.from_numpy(index.search(points.numpy(), K + 1)[1])


def faiss_hnsw(points: Tensor) -> Iterator[tuple[str, Search]]:
    for links, width in ((16, 16), (16, 32), (32, 32), (32, 64), (32, 128)):
        text = f"faiss HNSW{links}, efSearch {width}"
        yield text, partial(faiss_index, points, f"HNSW{links},Flat", efConstruction=40, efSearch=width)


def faiss_ivf(points: Tensor) -> Iterator[tuple[str, Search]]:
    cells = int(len(points) ** 0.5)
    for probe in (2, 3, 4, 6, 8, 16, 32):
        text = f"faiss IVF{cells}, nprobe {probe}"
        yield text, partial(faiss_index, points, f"IVF{cells},Flat", nprobe=probe)


def hnswlib_search(points: Tensor) -> Iterator[tuple[str, Search]]:
    import hnswlib  # noqa: PLC0415, not installed everywhere

    def search(links: int, built_with: int, width: int) -> Tensor:
        index = hnswlib.Index(space="l2", dim=points.shape[1])
        index.init_index(max_elements=len(points), ef_construction=built_with, M=links, random_seed=0)
        index.set_num_threads(torch.get_num_threads())
        index.add_items(points.numpy())
        index.set_ef(width)
        return torch.from_numpy(index.knn_query(points.numpy(), K + 1)[0].astype("int64"))

    for links, built_with, width in ((8, 40, 32), (16, 40, 32), (16, 100, 32), (16, 100, 64), (16, 200, 128)):
        yield f"hnswlib, M {links}, ef {built_with} and {width}", partial(search, links, built_with, width)


def pynndescent_search(points: Tensor) -> Iterator[tuple[str, Search]]:
    import pynndescent  # noqa: PLC0415, not installed everywhere

    def search(neighbors: int, points: Tensor = points) -> Tensor:
        threads = torch.get_num_threads()
        index = pynndescent.NNDescent(points.numpy(), n_neighbors=neighbors, random_state=0, n_jobs=threads)
        return torch.from_numpy(index.neighbor_graph[0][:, : K + 1].astype("int64"))

    search(K + 1, points[:5_000])  # compiles its functions, which is not measured
    for neighbors in (K + 1, 20, 30, 45):
        yield f"pynndescent, {neighbors} neighbors", partial(search, neighbors)


def measured(search: Search) -> tuple[Any, float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    return search(), time.perf_counter() - start, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer-rows", type=int, default=5_000)
    parser.add_argument("--points", type=int, help="of the made-up pool and of white noise")
    parser.add_argument("--ours", action="store_true", help="leave out the other approximate searches")
    parser.add_argument("--pools", nargs="+", default=["trained head", "made-up"], choices=NAMES)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(torch.get_num_threads())
    others = [faiss_ivf, faiss_hnsw]
    others += [hnswlib_search] * (find_spec("hnswlib") is not None)
    others += [pynndescent_search] * (find_spec("pynndescent") is not None)
    sides = [ours, our_exact, *([] if arguments.ours else others)]
    print(f"cpu, {torch.get_num_threads()} threads, torch {torch.__version__}, faiss {faiss.__version__}, k = {K}\n")
    print("| pool | n | d | search | recall | seconds | CPU seconds | exact faiss / this, CPU |")
    print("|---" * 8 + "|")
    for name in arguments.pools:
        points = load(name, arguments.data, arguments.points)
        drawn = torch.randperm(len(points), generator=torch.Generator().manual_seed(1))[:500]
        exact = faiss.IndexFlatL2(points.shape[1])
        exact.add(points.numpy())
        some = points[: arguments.peer_rows].numpy()
        _, seconds, cpu = measured(partial(exact.search, some, K + 1))
        factor = len(points) / len(some)
        peer = factor * cpu
        true = torch.from_numpy(exact.search(points[drawn].numpy(), K + 1)[1])
        true = true[true != drawn[:, None]].view(len(drawn), -1)[:, :K]
        heading = f"| {name} | {len(points):,} | {points.shape[1]}"
        print(f"{heading} | faiss exact | 1 | {factor * seconds:.1f} | {peer:.1f} | 1.0 |", flush=True)
        for side in sides:
            for setting, search in side(points):
                text = setting
                found, seconds, cpu = measured(search)
                recall = float((true[:, :, None] == found[drawn][:, None]).any(dim=2).float().mean())
                if recall >= MIN_RECALL:
                    break
            print(f"{heading} | {text} | {recall:.3f} | {seconds:.1f} | {cpu:.1f} | {peer / cpu:.1f} |", flush=True)


if __name__ == "__main__":
    main()
