"""How much memory this process may still take."""

from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")
CGROUP: Final = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, as far as the system says; None where it does not.

    The least of what the machine has free and what a container's limit leaves (Linux, cgroup version 2).
    """
    found = [free for free in (free_on_machine(), free_in_container()) if free is not None]
    return max(0, min(found)) if found else None


def free_on_machine() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:  # not Linux
        return None
    kib = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * kib[0] if kib else None


def free_in_container() -> int | None:
    try:
        limit, used = (CGROUP / "memory.max").read_text(), (CGROUP / "memory.current").read_text()
        cached = (CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    if limit.strip() == "max":
        return None
    # Pages of files count as used, and are given up when memory is short.
    reclaimable = sum(int(line.split()[1]) for line in cached if line.startswith("inactive_file "))
    return int(limit) - int(used) + reclaimable
