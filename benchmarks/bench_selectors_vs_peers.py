"""How long every selector takes, and how much memory, beside the peers that offer the same one.

Every measurement is a process of its own, cold, with imports and data loaded before the clock starts; the sides take
turns. What takes less than a second is done again in the same process, three times, and their median is the warm
column: a process that has trained a network has made torch's first calls already. Peak memory is the process's own,
above what it held once the data was loaded. A side that needs more memory or time than it is given is recorded as such,
and the bench goes on. All begin with a model's logits and its embedding, or with the probabilities of its passes, and
with the labels known so far, in which they find the points without one. Ours is a snapshot, checked, and the call of a
selector on it; the callback also checks the answer, which takes less than a tenth of a millisecond for 100 points.
Results are appended to a file as they come, and what is in it is not measured again.

Where both sides must choose the same points, the table says how many of them they share; where the choice has ties or
chance, it gives what the choice is made for: the covering radius of coreset (smaller is better), the share of the pool
that ProbCover covers (larger is better). (small-text 1.4.1 takes places among the unlabeled for indices of the pool
once it has chosen a point, so its coreset is another one.)

Peers: pip install scikit-activeml small-text baal graphlearning. A peer that is missing is left out.
Usage: python benchmarks/bench_selectors_vs_peers.py [--sizes 10000 50000 1000000] [--selectors margin badge ...]
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from hidden_layer import hidden_layer

CLASSES, SIZE, PASSES, NEIGHBORS = 10, 100, 10, 20
RADIUS, TAU = 0.5, 0.001
MODULES = {
    "scikit-activeml": "skactiveml",
    "small-text": "small_text",
    "baal": "baal",
    "graphlearning": "graphlearning",
}
# Whether both sides should choose the same points.
SAME = {"uncertainty", "margin", "entropy", "bald", "poisson"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 50_000, 1_000_000])
    parser.add_argument("--dimensions", type=int, default=20)
    parser.add_argument("--known", type=int, default=100, help="labels known before the query")
    parser.add_argument("--selectors", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gib", type=float, default=16.0, help="memory a process may have")
    parser.add_argument("--seconds", type=float, default=900.0, help="time a process may take")
    parser.add_argument("--folder", type=Path, default=Path("out/selectors"))
    parser.add_argument("--one", nargs=3, metavar=("SELECTOR", "SIDE", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        selector, side, file = arguments.one
        measure(selector, side, Path(file), arguments.gib)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results = arguments.folder / "results.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    setting = {"dimensions": arguments.dimensions, "known": arguments.known}
    for n in arguments.sizes:
        for repeat in range(arguments.repeats):
            for selector in arguments.selectors:
                for side in sides_of(selector):
                    key = setting | {"n": n, "selector": selector, "side": side}
                    before = [run for run in done if run.items() >= key.items()]
                    # Who has run out of memory or time once is not tried again.
                    if any(run["repeat"] == repeat or "failed" in run for run in before):
                        continue
                    done.append(key | {"repeat": repeat} | run_apart(selector, side, n, arguments))
                    with results.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
                    print(f"{n:,} {selector} {side}: {shown(done[-1:])}", file=sys.stderr, flush=True)
    asked = [run for run in done if run["n"] in arguments.sizes and run["selector"] in arguments.selectors]
    print(table([run for run in asked if run.items() >= setting.items()]))


def sides_of(selector: str) -> list[str]:
    return ["ours", *(side for (name, side) in PEERS if name == selector and find_spec(MODULES[side]) is not None)]


def run_apart(selector: str, side: str, n: int, arguments: argparse.Namespace) -> dict[str, Any]:
    file = make_data(n, arguments.dimensions, arguments.known, arguments.folder)
    command = [sys.executable, __file__, "--one", selector, side, str(file), "--gib", str(arguments.gib)]
    environment = os.environ | {
        f"{name}_NUM_THREADS": str(arguments.threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")
    }
    try:
        process = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=arguments.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {arguments.seconds:.0f} s"}
    if process.returncode == 0:
        return dict(json.loads(process.stdout.splitlines()[-1]))
    starved = any(word in process.stderr for word in ("MemoryError", "not enough memory", "can't allocate"))
    last = process.stderr.strip().splitlines()[-1:] or [f"signal {-process.returncode}"]
    return {"failed": f"more than {arguments.gib:.0f} GiB" if starved else last[0][:100]}


def make_data(n: int, dimensions: int, known: int, folder: Path) -> Path:
    """A file of embeddings of a hidden layer, a linear model's logits on them, and the labels that are known."""
    file = folder / f"data_{n}_{dimensions}_{known}.npz"
    if not file.exists():
        embedding, label = hidden_layer(n, dimensions, CLASSES)
        rng = np.random.default_rng(1)
        logits = (embedding - embedding.mean(axis=0)) @ rng.normal(size=(dimensions, CLASSES)).astype(np.float32)
        labels = np.full(n, -1)
        first = rng.choice(n, known, replace=False)
        labels[first] = label[first]
        np.savez(file, embedding=embedding, logits=logits, known=labels)
    return file


class Data:
    """What both sides are given."""

    def __init__(self, selector: str, file: Path) -> None:
        data = np.load(file)
        self.embedding, self.logits, self.known = data["embedding"], data["logits"], data["known"]
        self.labeled, self.unlabeled = np.flatnonzero(self.known >= 0), self.find_unlabeled()
        self.passes: Any = None  # (passes, n, c)
        self.graph: Any = None
        if selector == "bald":
            rng = np.random.default_rng(2)
            noise = [rng.normal(size=self.logits.shape).astype(np.float32) for _ in range(PASSES)]
            self.passes = np.stack([softmax(self.logits + one) for one in noise])
        if selector == "poisson":
            self.graph = graph_of(self.embedding, file.with_suffix(".graph"))

    def find_unlabeled(self) -> Any:
        return np.flatnonzero(self.known < 0)


def graph_of(embedding: Any, file: Path) -> Any:
    """The graph that both sides are given, kept in a file: at a million points it takes minutes."""
    import torch  # noqa: PLC0415

    from lightning_diffal import NeighborGraph, build_graph  # noqa: PLC0415

    if not file.exists():
        graph = build_graph(torch.from_numpy(embedding), NEIGHBORS, symmetric=True)
        torch.save((graph.crow, graph.col, graph.weight), file)
    return NeighborGraph(*torch.load(file))


def softmax(logits: Any) -> Any:
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def measure(selector: str, side: str, file: Path, gib: float) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30), int(gib * 2**30)))
    data = Data(selector, file)
    work = (OURS[selector] if side == "ours" else PEERS[selector, side])(data)
    held = peak_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    chosen = np.asarray(work()).astype(int)
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    result = {"seconds": seconds, "cpu": cpu_seconds, "peak": peak_memory() - held, "indices": chosen.tolist()}
    result["warm"] = statistics.median(timed(work) for _ in range(3)) if seconds < 1 else seconds
    if len(set(chosen.tolist())) != SIZE or (data.known[chosen] >= 0).any():
        result["wrong"] = f"{len(set(chosen.tolist()))} different points, {(data.known[chosen] >= 0).sum()} labeled"
    if selector in ("coreset", "probcover"):
        centers = np.concatenate([data.labeled, chosen])
        blocks = np.array_split(data.embedding, max(1, len(data.embedding) // 10_000))
        gap = np.concatenate([gap_to(block, data.embedding[centers]) for block in blocks])
        result["goal"] = float(gap.max() if selector == "coreset" else (gap <= RADIUS).mean())
    print(json.dumps(result))


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def gap_to(points: Any, centers: Any) -> Any:
    from scipy.spatial.distance import cdist  # noqa: PLC0415

    return cdist(points, centers).min(axis=1)


def peak_memory() -> float:
    """The most this process has held so far, in MiB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


Work = Callable[[], Any]


def ours(code: str) -> Callable[[Data], Work]:
    """One of our selectors, by the expression a user would write."""

    def prepare(data: Data) -> Work:
        import torch  # noqa: PLC0415

        import lightning_diffal  # noqa: PLC0415
        from lightning_diffal.selectors.selector import parameters_of  # noqa: PLC0415
        from lightning_diffal.selectors.uncertainty import entropy  # noqa: PLC0415

        selector = eval(code, vars(lightning_diffal))
        labels = torch.from_numpy(data.known)
        parts = {"embeddings": torch.from_numpy(data.embedding), "logits": torch.from_numpy(data.logits)}
        needed: dict[str, Any] = {name: part for name, part in parts.items() if name in selector.needs}
        passes = None if data.passes is None else torch.from_numpy(data.passes)
        draws = "generator" in parameters_of(selector)

        def work() -> Any:
            stochastic = None
            if passes is not None:  # what the callback adds up pass by pass
                entropies = [entropy(one) for one in passes]
                stochastic = lightning_diffal.StochasticPasses(passes.mean(dim=0), torch.stack(entropies).mean(dim=0))
            snapshot = lightning_diffal.Snapshot(labels=labels, num_classes=CLASSES, stochastic=stochastic, **needed)
            chance = {"generator": torch.Generator().manual_seed(0)} if draws else {}
            return selector(snapshot, SIZE, **chance).indices

        return work

    return prepare


def our_poisson(data: Data) -> Work:
    import torch  # noqa: PLC0415

    from lightning_diffal import take_lowest  # noqa: PLC0415
    from lightning_diffal.selectors.poisson import reweighted_laplace  # noqa: PLC0415

    labels, unlabeled = torch.from_numpy(data.known), torch.from_numpy(data.unlabeled)
    return lambda: take_lowest(reweighted_laplace(data.graph, labels, CLASSES, TAU), unlabeled, SIZE).indices


OURS: dict[str, Callable[[Data], Work]] = {
    "random": ours("RandomSelector()"),
    "uncertainty": ours("UncertaintySelector()"),
    "margin": ours("MarginSelector()"),
    "entropy": ours("EntropySelector()"),
    "bald": ours(f"BALDSelector(passes={PASSES})"),
    "coreset": ours("CoresetSelector()"),
    "badge": ours("BADGESelector()"),
    "typiclust": ours("TypiClustSelector()"),
    "probcover": ours(f"ProbCoverSelector(radius={RADIUS})"),
    "probcover, δ found": ours("ProbCoverSelector()"),
    "poisson": our_poisson,
    "poisson with graph": ours(f"PoissonSelector(neighbors={NEIGHBORS})"),
    "dirichlet with graph": ours(f"DirichletSelector(neighbors={NEIGHBORS})"),
    "local max with graph": ours(f"LocalMaxSelector(of=MarginSelector(), neighbors={NEIGHBORS})"),
    "diffusion with graph": ours("DiffusionSelector()"),
}


def activeml(make: Callable[[Any, Any], Any], uses_model: bool = False) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        from skactiveml import pool  # noqa: PLC0415
        from skactiveml.base import SkactivemlClassifier  # noqa: PLC0415

        class Model(SkactivemlClassifier):  # type: ignore[misc]
            """Says what our logits say."""

            def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
                return self

            def predict_proba(self, X: Any) -> Any:  # noqa: N803
                return softmax(data.logits[data.unlabeled])

        strategy = make(pool, data)
        target = np.where(data.known >= 0, data.known, np.nan).astype(float)
        model = {"clf": Model(classes=list(range(CLASSES))), "fit_clf": False} if uses_model else {}
        return lambda: strategy.query(data.embedding, target, batch_size=SIZE, **model)

    return prepare


def small_text(name: str) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        import small_text as module  # noqa: PLC0415

        class Model:
            def predict_proba(self, dataset: Any, dropout_sampling: int = 1) -> Any:
                return softmax(data.logits) if data.passes is None else np.swapaxes(data.passes, 0, 1)

        strategy = getattr(module, name)()
        known = data.known[data.labeled]

        def work() -> Any:
            unlabeled = data.find_unlabeled()  # as small-text's own learner does at every query
            return strategy.query(Model(), data.embedding, unlabeled, data.labeled, known, n=SIZE)

        return work

    return prepare


def small_text_coreset(data: Data) -> Work:
    from small_text import greedy_coreset  # noqa: PLC0415

    return lambda: data.unlabeled[
        greedy_coreset(data.embedding, data.unlabeled, data.labeled, SIZE, distance_metric="euclidean", normalized=True)
    ]


def baal(name: str) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        from baal.active import heuristics  # noqa: PLC0415

        heuristic = getattr(heuristics, name)()

        def work() -> Any:
            given = softmax(data.logits) if data.passes is None else np.moveaxis(data.passes, 0, 2)
            unlabeled = data.find_unlabeled()  # as baal's own dataset does
            return unlabeled[np.asarray(heuristic(given[unlabeled]))[:SIZE]]

        return work

    return prepare


def graphlearning(data: Data) -> Work:
    import graphlearning as gl  # noqa: PLC0415
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    n, graph = len(data.known), data.graph
    parts = (graph.weight.double().numpy(), graph.col.numpy(), graph.crow.numpy())
    model = gl.ssl.laplace(csr_matrix(parts, (n, n)), reweighting="poisson", tau=TAU)

    def work() -> Any:
        u = model.fit(data.labeled, data.known[data.labeled])
        norm = np.linalg.norm(u[data.unlabeled], axis=1)
        return data.unlabeled[np.argsort(norm)[:SIZE]]

    return work


PEERS: dict[tuple[str, str], Callable[[Data], Work]] = {
    ("random", "scikit-activeml"): activeml(lambda pool, data: pool.RandomSampling(random_state=0)),
    ("random", "small-text"): small_text("RandomSampling"),
    ("random", "baal"): baal("Random"),
    ("uncertainty", "scikit-activeml"): activeml(lambda pool, data: pool.UncertaintySampling(random_state=0), True),
    ("uncertainty", "small-text"): small_text("LeastConfidence"),
    ("uncertainty", "baal"): baal("Certainty"),
    ("margin", "scikit-activeml"): activeml(
        lambda pool, data: pool.UncertaintySampling(method="margin_sampling", random_state=0), True
    ),
    ("margin", "small-text"): small_text("BreakingTies"),
    ("margin", "baal"): baal("Margin"),
    ("entropy", "scikit-activeml"): activeml(
        lambda pool, data: pool.UncertaintySampling(method="entropy", random_state=0), True
    ),
    ("entropy", "small-text"): small_text("PredictionEntropy"),
    ("entropy", "baal"): baal("Entropy"),
    ("bald", "small-text"): small_text("BALD"),
    ("bald", "baal"): baal("BALD"),
    ("coreset", "scikit-activeml"): activeml(lambda pool, data: pool.CoreSet(random_state=0)),
    ("coreset", "small-text"): small_text_coreset,
    ("badge", "scikit-activeml"): activeml(lambda pool, data: pool.Badge(random_state=0), True),
    ("typiclust", "scikit-activeml"): activeml(lambda pool, data: pool.TypiClust(k=20, random_state=0)),
    ("probcover", "scikit-activeml"): activeml(
        lambda pool, data: pool.ProbCover(n_classes=CLASSES, deltas=[RADIUS], random_state=0)
    ),
    ("probcover, δ found", "scikit-activeml"): activeml(
        lambda pool, data: pool.ProbCover(n_classes=CLASSES, random_state=0)
    ),
    ("poisson", "graphlearning"): graphlearning,
}


def table(runs: list[dict[str, Any]]) -> str:
    lines = ["| n | selector | side | seconds | warm s | CPU s | peak MiB | same points as ours, or goal |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for n in sorted({run["n"] for run in runs}):
        for selector in OURS:
            of_ours = [run for run in runs if (run["n"], run["selector"], run["side"]) == (n, selector, "ours")]
            for side in ["ours", *MODULES]:
                some = [run for run in runs if (run["n"], run["selector"], run["side"]) == (n, selector, side)]
                if some:
                    agreed = agreement(selector, some[0], of_ours[0])
                    lines.append(f"| {n:,} | {selector} | {side} | {shown(some)} | {agreed} |")
    return "\n".join(lines)


def shown(runs: list[dict[str, Any]]) -> str:
    good = [run for run in runs if "failed" not in run]
    if not good:
        return f"{runs[-1]['failed']} | | | "
    columns = [statistics.median(run[name] for run in good) for name in ("seconds", "warm", "cpu", "peak")]
    return f"{columns[0]:,.4f} | {columns[1]:,.4f} | {columns[2]:,.3f} | {columns[3]:,.0f}"


def agreement(selector: str, run: dict[str, Any], of_ours: dict[str, Any]) -> str:
    if "failed" in run:
        return ""
    parts = [f"wrong: {run['wrong']}"] if "wrong" in run else []
    if selector in SAME and run is not of_ours and "failed" not in of_ours:
        parts.append(f"{len(set(run['indices']) & set(of_ours['indices']))}/{SIZE}")
    if "goal" in run:
        parts.append(f"{run['goal']:.4f}")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
