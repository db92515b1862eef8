"""Run all benchmarks in their short form and write their tables to out/bench, one file each, in under 15 minutes.

    python tools/run_benchmarks.py
    python tools/run_benchmarks.py --data DIR                          # also those that need data sets
    python tools/run_benchmarks.py --only bench_coverage bench_extremes

The long forms, whose tables docs/speed.md shows, are the same files without these arguments. One that needs a package
that is not installed fails alone, and one that takes longer than its share of the time is stopped: its table has the
rows it printed, its .log says why.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"
# Arguments of the short form; DATA and TEMPORARY stand for folders. A file that is not listed runs as it is.
SHORT = {
    "bench_approximate": "--data DATA --pools made-up --peer-rows 1000",
    "bench_audit_vs_cleanlab": "--data DATA --seeds 1",
    "bench_coverage": "--points 10000 50000 --labels 0 280",
    "bench_expected_cost": "--points 50000 --selectors approximate --size 20",
    "bench_extremes": "--short",
    "bench_graph_backends": "--repeats 1 --max-points 10000 --max-dimensions 64",
    "bench_high_dimensions": "--data DATA --repeats 1 --peer-rows 2000",
    "bench_labels_over_features": "DATA/mnist.npz --points 5000",
    "bench_many_classes": "--classes 10 1000 --labels 2000 --choices 5",
    "bench_million_points": "--points 30000 --choices 20",
    "bench_query_vs_the_papers_stack": "--settings mnist cifar10 --repeats 1",
    "bench_round_vs_fit": "--repeats 1",
    "bench_selectors_vs_peers": "--folder TEMPORARY --sizes 10000 --repeats 1 --selectors random margin badge",
    "bench_several_ranks_vs_one": "--repeats 1 --points 20000",
    "bench_small_data_sets": "--data-sets moons --selectors coverage --seeds 1",
    "bench_shortcuts_vs_accuracy": "--data DATA --out TEMPORARY --studies mnist-fc --seeds 1 --budget 40",
}
MINUTES = 14.0


def run(name: str, options: list[str], out: Path, limit: float) -> str:
    """Run one benchmark and say how it went; its output is written to the file as it comes."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options]
    with (out / f"{name}.md").open("w") as table, (out / f"{name}.log").open("w") as log:
        # A session of its own, since some benchmarks start processes that have to end with them.
        process = subprocess.Popen(command, stdout=table, stderr=log, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            log.write(f"Stopped after {limit:.0f} seconds.\n")
            return f"stopped after {limit:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return "done" if code == 0 else f"failed, see {name}.log"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--data", type=Path, help="folder with mnist.npz and cifar10_efficientnet.npz")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all of them")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    end, failed = time.monotonic() + 60 * arguments.minutes, False
    for position, name in enumerate(arguments.only):
        short = SHORT.get(name, "")
        if "DATA" in short and arguments.data is None:
            print(f"{name}: left out, it needs --data", flush=True)
            continue
        start = time.monotonic()
        limit = (end - start) / (len(arguments.only) - position)  # what the others did not use is shared
        with tempfile.TemporaryDirectory() as temporary:
            options = short.replace("DATA", str(arguments.data)).replace("TEMPORARY", temporary).split()
            result = run(name, options, arguments.out, limit)
        failed |= result != "done"
        print(f"{name}: {result}, {time.monotonic() - start:.0f} s", flush=True)
    print(f"The tables are in {arguments.out}.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
