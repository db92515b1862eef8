"""Parts of a search that need nothing of each other, each on a core of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from lightning_diffal.arguments import Progress


def side_by_side(
    work: Callable[[int], None], parts: Sequence[int], device: torch.device, progress: Progress = iter
) -> None:
    """Do `work` for every part, on as many cores at a time as torch may use.

    torch itself shares out every single operation and waits for all cores after each. A search makes thousands of
    small ones, most of them below the size at which torch shares anything out, and where another process holds one of
    the cores every wait is a long one. Parts that write to rows of their own need no waiting. On a GPU, and where torch
    has one thread, this is a plain loop.
    """
    threads = min(cores(device), len(parts))
    if threads < 2:
        for part in progress(parts):
            work(part)
        return
    inference = torch.is_inference_mode_enabled()

    def alone(part: int) -> None:
        torch.set_num_threads(1)
        with torch.no_grad(), torch.inference_mode(inference):  # both are a thread's own
            work(part)

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads) as pool:
            done = [pool.submit(alone, part) for part in parts]
            try:
                for place, _ in enumerate(progress(parts)):
                    done[place].result()
            finally:
                for waiting in done:
                    waiting.cancel()
    finally:
        torch.set_num_threads(before)  # the matrix library has one number for all threads


def cores(device: torch.device) -> int:
    """How many parts go at a time."""
    return torch.get_num_threads() if device.type == "cpu" else 1
