"""A small run in processes that are killed, and what came out. Called by test_kill_and_resume.py.

Lightning takes seconds to import, so the processes are forked from the one that has imported it: real processes, files
and kills.
"""

import io
import json
import logging
import os
import random
import shutil
import signal
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet


def paid(indices):
    """An oracle that notes what it was asked, in a file that no kill undoes."""
    with Path(os.environ["ASKED"]).open("a") as file:
        file.write("".join(f"{index}\n" for index in indices))
    return Clouds().targets[indices].tolist()


def run(folder, seconds=0.0, **options):
    """One run in a process of its own, killed by the kernel after so many seconds of processor time; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        # Seconds of a clock would depend on what else the machine does. Python has no handler for this signal.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        os.environ["ASKED"] = str(folder / "asked")
        torch.set_num_threads(1)
        logging.disable(logging.INFO)
        warnings.resetwarnings()
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            active = learner(query_size=4, budget=17, initial=5, **options)
            active.fit(quiet(folder, active), Net(), datamodule=Data())
        code = 0
    finally:
        os._exit(code)


def ledger(folder):
    path = folder / "active_learning" / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return [[line["indices"], line["labels"], line["scores"]] for line in whole if "labels" in line]


def answers(folder):
    """What an oracle had said and was on the disk."""
    path = folder / "active_learning" / "answers.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [index for line in lines if line.endswith("\n") for index in json.loads(line)["indices"]]


def asked(folder):
    """What it was asked, by its own account."""
    return list(map(int, (folder / "asked").read_text().split())) if (folder / "asked").exists() else []


def ended(child):
    """How a process ended, and the seconds of processor time that it took."""
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def reports(folder, kills):
    """What came out of runs that were killed and started again: one in each of `kills` parts of a run, at random."""
    chance = random.Random(0)
    for options in ({}, {"warm_start": True, "oracle": paid}):
        name = "-".join(options) or "plain"
        whole = folder / f"{name}-whole"
        whole.mkdir()
        code, length = ended(run(whole, **options))
        assert code == 0
        for kill in range(kills):
            place = folder / f"{name}-{kill}"
            place.mkdir()
            code, _ = ended(run(place, length * (kill + chance.random()) / kills, **options))
            before, answered, noted = ledger(place), answers(place), asked(place)
            again, _ = ended(run(place, **options))
            yield {
                "name": name,
                "killed": code == -signal.SIGPROF,
                "lines_when_killed": len(before),
                "kept": ledger(place)[: len(before)] == before,
                "same": again == 0 and ledger(place) == ledger(whole),
                "rounds": len(ledger(whole)),
                "asked_twice": len(set(answered) & set(asked(place)[len(noted) :])),
                "answered": len(answered),
            }
            shutil.rmtree(place)
