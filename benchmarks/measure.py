"""What the benchmarks measure and print: seconds, peak memory, medians with their range."""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """The result of a call and its seconds."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def peak_memory() -> float:
    """The peak memory of this process so far, in MiB; `ru_maxrss` would include that of its parent."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def median_and_range(values: Sequence[float], digits: int = 2) -> str:
    median = f"{statistics.median(values):,.{digits}f}"
    return median if len(values) == 1 else f"{median} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
