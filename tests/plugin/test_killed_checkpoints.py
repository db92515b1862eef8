"""Two ranks with warm starts, one of them killed at each step by which a checkpoint, an answer or a line is written."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from lightning_diffal import ActiveLearning
from lightning_diffal.selectors.random import RandomSelector
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import Clouds, Data, Net, quiet

pytestmark = pytest.mark.filterwarnings("ignore")
FIRST, QUERY = 9, 8

# A call of the kernel that rank 0 makes, the file it is about, and which of such calls; before and after it.
STEPS = [
    ("replace", "untrained.ckpt", 1),
    ("fsync", "trained-1.ckpt", 1),
    ("replace", "trained-1.ckpt", 1),
    ("fsync", "answers.jsonl", 2),
    ("fsync", "rounds.jsonl", 1),
    ("fsync", "rounds.jsonl", 2),
    ("replace", "selection.csv", 2),
    ("replace", "trained-2.ckpt", 1),
]
ALL = [(step, when, victim) for step in STEPS for when in ("before", "after") for victim in (0, 1)]
CASES = ALL if os.environ.get("SLOW") else [ALL[number] for number in (0, 5, 10, 13, 17, 23, 24, 30)]


class Still(Net):
    """Learns nothing, so that a round fitted again comes to the same."""

    def __init__(self, folder):
        super().__init__(lr=0.0)
        self.folder, self.backbone = folder, nn.Sequential(nn.Linear(2, 16), nn.ReLU())

    def setup(self, stage):
        (self.folder / f"process-{self.global_rank}").write_text(str(os.getpid()))


def paid(folder):
    def oracle(indices):
        with (folder / "asked").open("a") as file:
            file.write("".join(f"{index}\n" for index in indices))
        return Clouds().targets[indices].tolist()

    return oracle


def kill_at(folder, case):
    """Let rank 0 kill a rank, itself or the other, around one of its own calls."""
    (name, about, number), when, victim = case
    real, seen = getattr(os, name), []

    def call(target, *others):
        path = str(others[-1] if name == "replace" else Path(f"/proc/self/fd/{target}").readlink())
        seen.append(1) if Path(path).name.startswith(about) else None
        strikes = Path(path).name.startswith(about) and len(seen) == number
        if strikes and when == "before":
            os.kill(int((folder / f"process-{victim}").read_text()), signal.SIGKILL)
        real(target, *others)
        if strikes and when == "after":
            os.kill(int((folder / f"process-{victim}").read_text()), signal.SIGKILL)

    setattr(os, name, call)


def run(folder, case=None):
    if case is not None and os.environ["RANK"] == "0":
        kill_at(folder, case)
    active = ActiveLearning(
        QUERY, FIRST + QUERY, selector=RandomSelector(), initial=FIRST, oracle=paid(folder), warm_start=True
    )
    trainer = quiet(folder, active, max_epochs=1, limit_val_batches=0, strategy="ddp", devices=2)
    assert active.fit(trainer, Still(folder), datamodule=Data()).labels == [FIRST, FIRST + QUERY]


def choices_of(folder):
    path = folder / "active_learning" / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["indices"] for line in lines if line.endswith("\n")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run_ranks(folder, lambda: run(folder)) == [None, None]
    return choices_of(folder)


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{when} {name} of {about}-{victim}" for (name, about, _), when, victim in CASES]
)
def test_killed_around_a_write_it_continues_to_the_same_ledger(tmp_path, undisturbed, case):
    ends = run_ranks(tmp_path, lambda: run(tmp_path, case))
    assert ends[case[2]] == signal.SIGKILL, "it was killed when it should be"
    before = choices_of(tmp_path)
    assert before == undisturbed[: len(before)]
    assert run_ranks(tmp_path, lambda: run(tmp_path)) == [None, None]
    assert choices_of(tmp_path) == undisturbed
    asked = (tmp_path / "asked").read_text().split()
    assert len(asked) == len(set(asked)) == FIRST + QUERY, "none is asked twice"
    for path in (tmp_path / "active_learning").glob("*.ckpt"):
        torch.load(path, weights_only=True)
