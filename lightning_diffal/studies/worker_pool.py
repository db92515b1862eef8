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
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from tqdm import tqdm

from lightning_diffal.pool.files import temporary_path
from lightning_diffal.studies.run_spec import Run

if sys.platform != "win32":
    import fcntl


def run_all(runs: Sequence[Run], workers: int) -> list[tuple[Run, str]]:
    """Execute the runs without a result, in order, in `workers` processes of one thread each.

    A failed run does not stop the others; the failed runs are returned with their tracebacks. Ctrl-C ends all processes
    at once, and each loses at most the round it was working on.
    """
    finished = [run for run in runs if run.result.exists()]
    waiting = [run for run in runs if run not in finished]
    for run in finished:  # stopped between writing the result and removing the folder
        shutil.rmtree(run.run_folder, ignore_errors=True)
    total, done = sum(run.fits for run in runs), sum(run.fits for run in finished)
    with tqdm(total=total, initial=done, unit="fit", smoothing=0.1, dynamic_ncols=True) as bar:
        pool = WorkerPool(waiting, bar)
        try:
            pool.work(min(workers, len(waiting)))
        finally:
            pool.terminate()
    return pool.failures


class WorkerPool:
    """Hands the waiting runs to worker processes, shows their progress and collects their failures."""

    def __init__(self, waiting: list[Run], bar: Any) -> None:
        self.waiting, self.bar = waiting, bar
        self.failures: list[tuple[Run, str]] = []
        self.workers: dict[Connection, Worker] = {}

    def work(self, workers: int) -> None:
        for _ in range(workers):
            self.start_worker()
        while self.workers:
            for connection in wait(list(self.workers)):
                self.receive(connection)  # type: ignore[arg-type]

    def start_worker(self) -> None:
        if self.waiting:
            worker = Worker(self.waiting.pop(0))
            self.workers[worker.connection] = worker
            self.describe()

    def receive(self, connection: Connection) -> None:
        """Handle one message: finished rounds of a run, its end, or its failure."""
        worker = self.workers[connection]
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            del self.workers[connection]
            self.fail(worker, f"its process ended with exit code {worker.process.exitcode}")
            self.start_worker()
            return
        if kind == "rounds":
            self.bar.update(content - worker.rounds)
            worker.rounds = content
            return
        if kind == "failed":
            self.fail(worker, content)
        if self.waiting:
            worker.start(self.waiting.pop(0))
        else:
            worker.process.kill()  # its results are written, and torch takes seconds to exit
            del self.workers[connection]
        self.describe()

    def fail(self, worker: "Worker", error: str) -> None:
        self.failures.append((worker.run, error))
        self.bar.write(f"Failed: {worker.run}: {error.splitlines()[-1]}", file=sys.stderr)

    def describe(self) -> None:
        self.bar.set_description("; ".join(str(worker.run) for worker in self.workers.values()))

    def terminate(self) -> None:
        """Kill all workers, and remove what they were writing."""
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.join()
            if worker.process.pid is not None:
                temporary_path(worker.run.result, worker.process.pid).unlink(missing_ok=True)


class Worker:
    """One process that executes one run after another, because Lightning takes seconds to import."""

    def __init__(self, run: Run) -> None:
        context = get_context("spawn")  # a fork of a process with threads may hang
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(theirs,), daemon=True)
        os.environ["OMP_NUM_THREADS"] = "1"  # read when the process loads its libraries
        if not torch.cuda.is_available():
            # Every optimizer step asks for a GPU, and without this searches for the driver each time.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self.process.start()
        theirs.close()
        self.start(run)

    def start(self, run: Run) -> None:
        self.run, self.rounds = run, 0
        self.connection.send(run)


def serve(connection: Connection) -> None:
    """Execute runs as they arrive, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the main process decides
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Lightning's, about small batches and few workers
    logging.disable(logging.INFO)
    from lightning_diffal.studies.execute import execute  # noqa: PLC0415, takes seconds

    def send(kind: str, content: Any = None) -> None:
        try:
            connection.send((kind, content))
        except OSError:
            sys.exit()  # the main process is gone; the ledger has every finished round

    while True:
        try:
            run: Run = connection.recv()
        except EOFError:
            return
        try:
            with locked(run):
                if not run.result.exists():
                    execute(run, lambda rounds: send("rounds", rounds))
            send("done")
        except Exception:
            send("failed", traceback.format_exc().strip())


@contextmanager
def locked(run: Run) -> Iterator[None]:
    """Refuse a run that another process is executing: both would write the same ledger."""
    run.run_folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    path = run.run_folder.with_suffix(".lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another process is executing this run and holds {path}") from None
        yield
        path.unlink()
