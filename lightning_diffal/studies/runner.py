"""Many runs on all cores. Stopped at any moment, they go on from there when they are started again."""

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

from lightning_diffal.studies.runs import Run

if sys.platform != "win32":
    import fcntl


def run_all(runs: Sequence[Run], workers: int) -> list[tuple[Run, str]]:
    """Perform the runs that have no result yet, in their order, each in one of so many processes with one thread.

    A run that fails does not stop the others: what it failed of is returned. Ctrl-C ends all processes at once, and
    loses no round but the one that each was at.
    """
    over = [run for run in runs if run.result.exists()]
    waiting = [run for run in runs if run not in over]
    for run in over:  # stopped after its result was written
        shutil.rmtree(run.memory, ignore_errors=True)
    total, there = sum(run.fits for run in runs), sum(run.fits for run in over)
    with tqdm(total=total, initial=there, unit="fit", smoothing=0.1, dynamic_ncols=True) as bar:
        crew = Crew(waiting, bar)
        try:
            crew.work(min(workers, len(waiting)))
        finally:
            crew.end()
    return crew.failures


class Crew:
    """The processes and what each of them is at."""

    def __init__(self, waiting: list[Run], bar: Any) -> None:
        self.waiting, self.bar = waiting, bar
        self.failures: list[tuple[Run, str]] = []
        self.members: dict[Connection, Member] = {}

    def work(self, workers: int) -> None:
        for _ in range(workers):
            self.hire()
        while self.members:
            for line in wait(list(self.members)):
                self.hear(line)  # type: ignore[arg-type]

    def hire(self) -> None:
        if self.waiting:
            member = Member(self.waiting.pop(0))
            self.members[member.line] = member
            self.show()

    def hear(self, line: Connection) -> None:
        member = self.members[line]
        try:
            what, content = line.recv()
        except (EOFError, OSError):
            member.process.join()
            del self.members[line]
            self.fail(member, f"its process ended with exit code {member.process.exitcode}")
            self.hire()
            return
        if what == "rounds":
            self.bar.update(content - member.rounds)
            member.rounds = content
            return
        if what == "failed":
            self.fail(member, content)
        if self.waiting:
            member.start(self.waiting.pop(0))
        else:
            member.process.kill()  # its results are on the disk; torch takes seconds to leave by itself
            del self.members[line]
        self.show()

    def fail(self, member: "Member", why: str) -> None:
        self.failures.append((member.run, why))
        self.bar.write(f"Failed: {member.run}: {why.splitlines()[-1]}", file=sys.stderr)

    def show(self) -> None:
        self.bar.set_description("; ".join(str(member.run) for member in self.members.values()))

    def end(self) -> None:
        """No process is left. What one of them was writing is not there yet."""
        for member in self.members.values():
            member.process.kill()
            member.process.join()
            for draft in member.run.result.parent.glob(f"*.{member.process.pid}.draft"):
                draft.unlink()


class Member:
    """One process of the crew, which performs one run after another: Lightning takes seconds to import."""

    def __init__(self, run: Run) -> None:
        context = get_context("spawn")  # a fork of a process with threads may hang
        self.line, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(theirs,), daemon=True)
        os.environ["OMP_NUM_THREADS"] = "1"  # read when the process loads its libraries
        if not torch.cuda.is_available():
            # An optimizer asks at every step whether there is a GPU; without this the driver is looked for each time.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self.process.start()
        theirs.close()
        self.start(run)

    def start(self, run: Run) -> None:
        self.run, self.rounds = run, 0
        self.line.send(run)


def serve(line: Connection) -> None:
    """Perform runs as they come, until there is nobody at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the first process decides
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of Lightning, about small batches and few workers
    logging.disable(logging.INFO)
    from lightning_diffal.studies.perform import perform  # noqa: PLC0415, seconds

    def tell(what: str, content: Any = None) -> None:
        try:
            line.send((what, content))
        except OSError:
            sys.exit()  # nobody listens any more; the ledger has it all

    while True:
        try:
            run: Run = line.recv()
        except EOFError:
            return
        try:
            with alone(run):
                if not run.result.exists():
                    perform(run, lambda rounds: tell("rounds", rounds))
            tell("done")
        except Exception:
            tell("failed", traceback.format_exc().strip())


@contextmanager
def alone(run: Run) -> Iterator[None]:
    """Refuse a run that another process is at: two of them would write one ledger."""
    run.memory.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    path = run.memory.with_suffix(".lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another process is at it, by {path}") from None
        yield
        path.unlink()
