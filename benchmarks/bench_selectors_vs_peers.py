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
once it has chosen a point, so its coreset is another one. graphlearning's own graph is an approximate one, by annoy.)

Peers: pip install scikit-activeml small-text baal graphlearning annoy. A peer that is missing is left out.
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
from sides_of_selectors import CLASSES, MODULES, OURS, PEERS, RADIUS, SIZE, Data

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
