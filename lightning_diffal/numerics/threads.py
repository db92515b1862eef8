"""Runs independent parts of a computation on several threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from lightning_diffal.arguments import Progress


def run_parallel(
    work: Callable[[int], None], parts: Sequence[int], device: torch.device, progress: Progress = iter
) -> None:
    """Call `work` for every part, on as many threads as torch may use.

    torch splits single operations among its threads and synchronizes after each. A search makes thousands of small
    operations, most of them too small to split. Parts that write to different rows need no synchronization. On a GPU,
    and where torch has one thread, this is a plain loop.
    """
    threads = min(num_threads(device), len(parts))
    if threads < 2:
        for part in progress(parts):
            work(part)
        return
    inference = torch.is_inference_mode_enabled()

    def work_on_one_thread(part: int) -> None:
        torch.set_num_threads(1)
        with torch.no_grad(), torch.inference_mode(inference):  # both are thread-local
            work(part)

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work_on_one_thread, part) for part in parts]
            try:
                for i, _ in enumerate(progress(parts)):
                    futures[i].result()
            finally:
                for future in futures:
                    future.cancel()
    finally:
        torch.set_num_threads(before)  # the matrix library has one number for all threads


def num_threads(device: torch.device) -> int:
    """The number of parts that run at a time."""
    return torch.get_num_threads() if device.type == "cpu" else 1


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for torch's operations, whose sums then do not depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
