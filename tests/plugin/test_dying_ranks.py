"""Ranks that die at the worst moments: the run ends at once, and continues when it is started again.

Real processes over gloo, under the default timeout of half an hour: nobody waits for it.
"""

import inspect
import json
import os
import re
import resource
import signal
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from lightning_diffal import ActiveLearning
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import DiffusionSelector, RandomSelector
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import Clouds, Data, Net, quiet

pytestmark = pytest.mark.filterwarnings("ignore")
FIRST, QUERY = 9, 8


@dataclass(frozen=True)
class Fault:
    """A moment of the first query after a fit, and the rank that dies then."""

    moment: str
    rank: int

    def strike(self, folder, moment, noticed_by):
        # A rank may still be in its dry run when the other has noted the first question: only answers end that.
        if moment == self.moment and noticed_by == self.rank and has_labels(folder):
            os.kill(os.getpid(), signal.SIGKILL)


NONE = Fault("never", 0)


class Announcing(StageTimer):
    """Says when a stage begins, and when it has made a step."""

    def __init__(self, announce):
        super().__init__()
        self.announce, self.name = announce, ""

    def begin(self, name):
        self.name = name
        self.announce(f"{name} begins")

    def advance(self):
        self.announce(f"{self.name} advances")


@dataclass(frozen=True, kw_only=True)
class Mortal(DiffusionSelector):
    """The method of the paper in a process that may die of it."""

    fault: Fault = field(default=NONE, repr=False)
    folder: Path = field(default=Path(), repr=False)
    padding: str = "x" * 4000  # in its repr: the ledger is to be the longest file, for limits on the size of files

    def __call__(self, snapshot, size, **extras):
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        extras["timer"] = Announcing(lambda moment: self.fault.strike(self.folder, moment, rank))
        return super().__call__(snapshot, size, **extras)

    __call__.__signature__ = inspect.signature(DiffusionSelector.__call__)


class Still(Net):
    """Learns nothing, so that two ranks choose as one process does; each notes its process."""

    def __init__(self, folder, fault):
        super().__init__(lr=0.0)
        self.folder, self.fault, self.backbone = folder, fault, nn.Sequential(nn.Linear(2, 16), nn.ReLU())

    def setup(self, stage):
        (self.folder / f"process-{self.global_rank}").write_text(str(os.getpid()))

    def forward(self, x):
        if self.trainer.predicting:
            self.fault.strike(self.folder, "embedding", self.global_rank)
        return super().forward(x)


def process_of(folder, rank):
    return int((folder / f"process-{rank}").read_text())


@dataclass
class Paid:
    """An oracle that notes each question in a file, whatever becomes of its process. It is asked after each choice."""

    folder: Path
    fault: Fault
    seconds: float
    immediate = True

    def __call__(self, indices):
        with (self.folder / "asked").open("a") as file:
            file.write("".join(f"{index}\n" for index in indices))
        ledger, last = ledger_of(self.folder), len(asked(self.folder)) == FIRST + QUERY
        in_round = has_labels(self.folder)
        if self.fault.moment == "answer" and in_round:
            os.kill(process_of(self.folder, self.fault.rank), signal.SIGKILL)
        if self.fault.moment.startswith("line") and in_round and last:
            # The kernel cuts the next line of the ledger off after so many bytes and kills the process.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            whole = ledger.stat().st_size + (60 if self.fault.moment == "line torn" else 0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (whole, whole))
        time.sleep(self.seconds if in_round else 0.0)
        return Clouds().targets[indices].tolist()


def run(folder, fault=NONE, seconds=0.0, **trainer):
    selector = Mortal(neighbors=5, steps=2, fault=fault, folder=folder)
    oracle = Paid(folder, fault, seconds)
    active = ActiveLearning(QUERY, FIRST + QUERY, initial=FIRST, selector=selector, oracle=oracle)
    trainer = quiet(folder, active, max_epochs=1, limit_val_batches=0, **trainer)
    history = active.fit(trainer, Still(folder, fault), datamodule=Data())
    assert history.labels == [FIRST, FIRST + QUERY]


def run_two(folder, fault=NONE, seconds=0.0, strategy="ddp", **trainer):
    return run_ranks(folder, lambda: run(folder, fault, seconds, strategy=strategy, devices=2, **trainer))


def ledger_of(folder):
    return folder / "active_learning" / "rounds.jsonl"


def lines_of(folder):
    lines = ledger_of(folder).read_text().splitlines(keepends=True) if ledger_of(folder).exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def has_labels(folder):
    """Whether the first questions are answered, so that rounds have begun."""
    return any("labels" in line for line in lines_of(folder))


def choices_of(folder):
    return [(line["indices"], line["labels"], line["last"]) for line in lines_of(folder)]


def asked(folder):
    return [int(line) for line in (folder / "asked").read_text().splitlines()]


def answered(folder):
    """What the oracle had said and was on the disk."""
    lines = (folder / "active_learning" / "answers.jsonl").read_text().splitlines()
    return [index for line in lines for index in json.loads(line)["indices"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder)
    assert len(asked(folder)) == FIRST + QUERY
    return choices_of(folder)


ALL = FIRST + QUERY
FAULTS = [  # and how many questions were asked by then, at least and at most
    (Fault("embedding", 0), FIRST, FIRST),
    (Fault("embedding", 1), FIRST, FIRST),
    (Fault("graph begins", 0), FIRST, FIRST),
    (Fault("graph begins", 1), FIRST, ALL - 1),
    (Fault("query advances", 0), FIRST + 1, FIRST + 1),
    (Fault("query advances", 1), FIRST + 1, ALL - 1),
    (Fault("answer", 1), FIRST + 1, ALL - 1),
    (Fault("line", 0), ALL, ALL),
    (Fault("line torn", 0), ALL, ALL),
]


@pytest.mark.parametrize(("fault", "least", "most"), FAULTS, ids=[f"{f.moment}-{f.rank}" for f, _, _ in FAULTS])
def test_a_rank_is_killed_and_the_run_ends_soon_and_continues_later(tmp_path, undisturbed, fault, least, most):
    ends = run_two(tmp_path, fault)
    assert ends[fault.rank] == (signal.SIGXFSZ if fault.moment.startswith("line") else signal.SIGKILL)
    assert re.search("by peer|Broken pipe", ends[1 - fault.rank]), "the other one stops with an error"
    assert least <= len(asked(tmp_path)) <= most, "it was killed when it should be"
    assert ledger_of(tmp_path).read_bytes().endswith(b"\n") == (fault.moment != "line torn")
    before, known = choices_of(tmp_path), asked(tmp_path)
    assert known == answered(tmp_path)
    assert run_two(tmp_path) == [None, None]
    assert choices_of(tmp_path)[: len(before)] == before
    assert choices_of(tmp_path) == undisturbed
    assert len(set(asked(tmp_path))) == len(asked(tmp_path)) == ALL, "none is asked twice"


def test_a_person_may_take_longer_than_the_ranks_may_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.plugin.test_dying_ranks.QUERY", 1)
    ends = run_two(tmp_path, seconds=9.0, strategy=DDPStrategy(timeout=timedelta(seconds=8)))
    assert ends == [None, None]
    assert len(asked(tmp_path)) == FIRST + 1


def test_an_oracle_that_fails_fails_on_every_rank(tmp_path):
    class Tired(Paid):
        def __call__(self, indices):
            raise ValueError("not today")

    def ask():
        active = ActiveLearning(QUERY, ALL, selector=RandomSelector(), oracle=Tired(tmp_path, NONE, 0.0))
        active.fit(quiet(tmp_path, active, strategy="ddp", devices=2), Still(tmp_path, NONE), datamodule=Data())

    first, second = run_ranks(tmp_path, ask)
    assert "ValueError: not today" in first
    assert "RuntimeError: Rank 0 failed: ValueError: not today" in second
    assert not has_labels(tmp_path), "the question is on the disk, and no answer"
