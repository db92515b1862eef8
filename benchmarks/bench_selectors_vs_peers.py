"""How long every selector takes, and how much memory, beside the peers that offer the same one.

Every measurement is a process of its own, cold, with imports and data loaded before the clock starts; the sides
alternate. What takes less than a second is repeated three times in the same process: the median is the warm column,
since torch's first calls have been made by the time a network is trained. Peak memory is above that of the loaded data.
A side that exceeds its memory or time is recorded as such. Every side starts from logits and embeddings, or the
probabilities of passes, and the known labels. Results are appended to a file and not measured again.

Where both sides must choose the same points, the table counts those they share; where the choice has ties or is
random, it gives the objective: the covering radius of coreset (smaller is better), the fraction of the pool that
ProbCover covers (larger is better). (small-text 1.4.1 confuses positions among the unlabeled with indices of the pool
once it has chosen a point, so its coreset differs. graphlearning's own graph is approximate, by annoy.)

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from measure import peak_memory, timed
from selector_calls import CLASSES, MODULES, OURS, PEERS, RADIUS, SIZE, Data
from synthetic_embeddings import synthetic_embeddings

# Selectors for which both sides should choose the same points.
SAME_POINTS = {"uncertainty", "margin", "entropy", "bald", "poisson"}


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
                    # A side that exceeded memory or time is not tried again.
                    if any(run["repeat"] == repeat or "failed" in run for run in before):
                        continue
                    done.append(key | {"repeat": repeat} | run_in_process(selector, side, n, arguments))
                    with results.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
                    print(f"{n:,} {selector} {side}: {medians(done[-1:])}", file=sys.stderr, flush=True)
    asked = [run for run in done if run["n"] in arguments.sizes and run["selector"] in arguments.selectors]
    print(table([run for run in asked if run.items() >= setting.items()]))


def sides_of(selector: str) -> list[str]:
    return ["ours", *(side for (name, side) in PEERS if name == selector and find_spec(MODULES[side]) is not None)]


def run_in_process(selector: str, side: str, n: int, arguments: argparse.Namespace) -> dict[str, Any]:
    file = make_data(n, arguments.dimensions, arguments.known, arguments.folder)
    command = [sys.executable, __file__, "--one", selector, side, str(file), "--gib", str(arguments.gib)]
    environment = os.environ | {
        f"{name}_NUM_THREADS": str(arguments.threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")
    }
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=arguments.seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {arguments.seconds:.0f} s"}
    if process.returncode == 0:
        return dict(json.loads(process.stdout.splitlines()[-1]))
    if any(message in process.stderr for message in ("MemoryError", "not enough memory", "can't allocate")):
        return {"failed": f"more than {arguments.gib:.0f} GiB"}
    last_line = process.stderr.strip().splitlines()[-1:] or [f"signal {-process.returncode}"]
    return {"failed": last_line[0][:100]}


def make_data(n: int, dimensions: int, known: int, folder: Path) -> Path:
    """A file of embeddings of a hidden layer, a linear model's logits on them, and the labels that are known."""
    file = folder / f"data_{n}_{dimensions}_{known}.npz"
    if not file.exists():
        embedding, label = synthetic_embeddings(n, dimensions, CLASSES)
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
    call = (OURS[selector] if side == "ours" else PEERS[selector, side])(data)
    memory, cpu = peak_memory(), time.process_time()
    indices, seconds = timed(call)
    result: dict[str, Any] = {"seconds": seconds, "cpu": time.process_time() - cpu, "peak": peak_memory() - memory}
    result["warm"] = statistics.median(timed(call)[1] for _ in range(3)) if seconds < 1 else seconds
    chosen = np.asarray(indices).astype(int)
    result["indices"] = chosen.tolist()
    if len(set(chosen.tolist())) != SIZE or (data.known[chosen] >= 0).any():
        result["wrong"] = f"{len(set(chosen.tolist()))} different points, {(data.known[chosen] >= 0).sum()} labeled"
    if selector in ("coreset", "probcover"):
        from scipy.spatial import cKDTree  # noqa: PLC0415, not before the memory is measured

        centers = cKDTree(data.embedding[np.concatenate([data.labeled, chosen])])
        distance = centers.query(data.embedding)[0]
        result["objective"] = float(distance.max() if selector == "coreset" else (distance <= RADIUS).mean())
    print(json.dumps(result))


def table(runs: list[dict[str, Any]]) -> str:
    lines = ["| n | selector | side | seconds | warm s | CPU s | peak MiB | same points as ours, or objective |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for n in sorted({run["n"] for run in runs}):
        for selector in OURS:
            measured = [run for run in runs if (run["n"], run["selector"]) == (n, selector)]
            by_side = {side: [run for run in measured if run["side"] == side] for side in ["ours", *MODULES]}
            for side, repeats in by_side.items():
                if repeats:
                    agreed = agreement(selector, repeats[0], by_side["ours"][0])
                    lines.append(f"| {n:,} | {selector} | {side} | {medians(repeats)} | {agreed} |")
    return "\n".join(lines)


def medians(runs: list[dict[str, Any]]) -> str:
    good = [run for run in runs if "failed" not in run]
    if not good:
        return f"{runs[-1]['failed']} | | | "
    columns = [statistics.median(run[name] for run in good) for name in ("seconds", "warm", "cpu", "peak")]
    return f"{columns[0]:,.4f} | {columns[1]:,.4f} | {columns[2]:,.3f} | {columns[3]:,.0f}"


def agreement(selector: str, run: dict[str, Any], ours: dict[str, Any]) -> str:
    if "failed" in run:
        return ""
    parts = [f"wrong: {run['wrong']}"] if "wrong" in run else []
    if selector in SAME_POINTS and run is not ours and "failed" not in ours:
        parts.append(f"{len(set(run['indices']) & set(ours['indices']))}/{SIZE}")
    if "objective" in run:
        parts.append(f"{run['objective']:.4f}")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
