"""Install torch-cluster into the environment that runs this file, and check that it works there.

torch-cluster is published as source only, so three things go wrong when it is installed like any other package:

1. pip builds in isolation, where there is no torch to build against. Here torch, setuptools and wheel must be
   installed first, and `--no-build-isolation` lets the build see them.
2. Its extensions are compiled one after another, 11 minutes of one core. `[build_ext] parallel` uses every core.
3. pip keeps the wheel it built under torch-cluster's version alone. After torch changed, the stale wheel comes back
   without a warning and fails on import. So a small search is run afterwards; if it fails, the wheel is rebuilt.

Usage: python tools/install_torch_cluster.py [options for pip install, such as -c constraints.txt]
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

REQUIREMENT = "torch-cluster>=1.6.3"

# The two nearest of 0, 1, 3, 7 to each of them, itself included.
PROBE = """
import torch, torch_cluster
points = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
found = torch_cluster.knn(points, points, 2)[1].reshape(4, 2).sort(dim=1).values.tolist()
assert found == [[0, 1], [0, 1], [1, 2], [2, 3]], found
"""


def run_probe() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)


def works() -> bool:
    return run_probe().returncode == 0


def pip_install(*options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        parallel_build = Path(folder) / "parallel.cfg"
        parallel_build.write_text(f"[build_ext]\nparallel={os.cpu_count() or 1}\n")
        command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", *options, REQUIREMENT]
        subprocess.run(command, check=True, env={**os.environ, "DIST_EXTRA_CONFIG": str(parallel_build)})


def main(options: list[str]) -> None:
    if works():
        return
    print("Building torch-cluster: about 6 minutes on two cores.", flush=True)
    pip_install(*options)
    if not works():
        print("pip's cached wheel does not fit this torch; rebuilding it.", flush=True)
        pip_install("--force-reinstall", "--no-deps", "--no-cache-dir", *options)
    if not works():
        sys.exit(f"{REQUIREMENT} was installed and fails on a small search:\n{run_probe().stderr}")


if __name__ == "__main__":
    main(sys.argv[1:])
