"""Many runs on all cores. Stopped at any moment, they continue from there when they are started again."""

import logging
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from lightning_diffal.pool.folder.files import temporary_path
from lightning_diffal.studies.run_spec import Run


@dataclass
class Worker:
    """The process of one run."""

    run: Run
    process: BaseProcess
    connection: Connection
    rounds: int = 0
    """Finished ones."""
    error: str = ""


def run_all(runs: Sequence[Run], processes: int) -> list[tuple[Run, str]]:
    """Execute the runs without a result, in order, in processes of one thread each.

    A failed run does not stop the others; the failed runs are returned with their tracebacks. Ctrl-C or a kill of this
    process ends all processes at once, and each loses at most the round it was working on.
    """
    finished = [run for run in runs if run.result.exists()]
    waiting = [run for run in runs if run not in finished]
    for run in finished:  # stopped between writing the result and removing the folder
        shutil.rmtree(run.run_folder, ignore_errors=True)
    total, done = sum(run.fits for run in runs), sum(run.fits for run in finished)
    failures = []
    workers: list[Worker] = []
    with tqdm(total=total, initial=done, unit="fit", smoothing=0.1, dynamic_ncols=True) as bar:
        try:
            while waiting or workers:
                while waiting and len(workers) < processes:
                    workers.append(start_worker(waiting.pop(0)))
                bar.set_description("; ".join(str(worker.run) for worker in workers))
                ready = wait([worker.connection for worker in workers])
                for worker in [worker for worker in workers if worker.connection in ready]:
                    if receive(worker, bar):
                        continue
                    workers.remove(worker)
                    if worker.error:
                        failures.append((worker.run, worker.error))
                        bar.write(f"Failed: {worker.run}: {worker.error.splitlines()[-1]}", file=sys.stderr)
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()
                temporary_path(worker.run.result, worker.process.pid or 0).unlink(missing_ok=True)
    return failures


def start_worker(run: Run) -> Worker:
    """A fork of a server that has imported Lightning, which takes seconds; a fork of this process may hang."""
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    context.set_forkserver_preload(["lightning_diffal.studies.execute"])
    os.environ["OMP_NUM_THREADS"] = "1"  # read when the server loads its libraries
    if not torch.cuda.is_available():
        # Every optimizer step asks for a GPU, and without this searches for the driver each time.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    connection, theirs = context.Pipe()
    process = context.Process(target=work, args=(run, theirs), daemon=True)
    process.start()
    theirs.close()
    return Worker(run, process, connection)


def receive(worker: Worker, bar: Any) -> bool:
    """Handle one message: the number of finished rounds, or a traceback. Whether the process is still there."""
    try:
        message = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        if worker.process.exitcode and not worker.error:
            worker.error = f"its process ended with exit code {worker.process.exitcode}"
        return False
    if isinstance(message, str):
        worker.error = message
    else:
        bar.update(message - worker.rounds)
        worker.rounds = message
    return True


def work(run: Run, connection: Connection) -> None:
    """Execute a run; the main function of its process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the main process decides
    Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Lightning's, about small batches and few workers
    logging.disable(logging.INFO)
    from lightning_diffal.studies.execute import execute  # noqa: PLC0415, takes seconds

    try:
        with locked(run):
            if not run.result.exists():
                execute(run, connection.send)
    except Exception:
        connection.send(traceback.format_exc().strip())


def end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, which may have been killed without a word."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def locked(run: Run) -> Iterator[None]:
    """Refuse a run that another process is executing: both would write the same ledger."""
    path = run.run_folder.with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(path).acquire(blocking=False)
    except Timeout:
        raise RuntimeError(f"another process is executing this run and holds {path}") from None
    with lock:
        yield
    path.unlink(missing_ok=True)
