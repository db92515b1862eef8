"""Ranks that come late at the start: they are waited for, named when they do not come, and may be ended."""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightning_diffal.plugin.distributed import arrival, rank_zero
from tests.plugin.rank_processes import error_of, run_ranks
from tests.plugin.test_multi_process import Shared
from tests.plugin.toy_model import Data, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore")


def rank():
    return int(os.environ["RANK"])


def wait_until(happened):
    """Until something happens; if it does not, a test goes on, and fails for that."""
    end = time.monotonic() + 60
    while not happened() and time.monotonic() < end:
        time.sleep(0.02)


class Slow(Data):
    """A rank needs some time, or waits for something, at one of the moments at which a run begins."""

    def __init__(self, moment, wait_for, late=1):
        super().__init__()
        self.moment, self.wait_for, self.late = moment, wait_for, late

    def wait(self, moment):
        if self.moment == moment and rank() == self.late:
            self.wait_for() if callable(self.wait_for) else time.sleep(self.wait_for)

    def setup(self, stage):
        self.wait("setup")

    def train_dataloader(self):
        self.wait("loader")
        return super().train_dataloader()


class Asked:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, indices):
        with (self.folder / "asked").open("a") as file:
            file.write("".join(f"{index}\n" for index in indices))
        return Data().dataset.targets[indices].tolist()


def fit(folder, data, world, before=0.0, **options):
    if rank() == 1:
        time.sleep(before)
    active = learner(budget=17, folder=folder / "run", oracle=Asked(folder), **options)
    trainer = quiet(folder, active, strategy="ddp", devices=world, limit_val_batches=0)
    active.fit(trainer, Shared(folder), datamodule=data)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("world", "moment", "before"), [(2, "setup", 0.0), (3, "loader", 0.0), (2, "never", 2.0)])
def test_a_rank_that_comes_two_seconds_late_finds_the_same_run(tmp_path, world, moment, before):
    ends = run_ranks(tmp_path, lambda: fit(tmp_path, Slow(moment, 2.0), world, before), world)
    assert ends == [None] * world
    assert [line["labeled"] for line in lines_of(tmp_path)] == [0, 9, 17]
    assert len((tmp_path / "asked").read_text().split()) == 17


def slow_reading(monkeypatch, late):
    """Reading the ledger takes two seconds on one rank, as on a slow network disk."""
    real = Path.read_bytes

    def read_bytes(path):
        if path.name == "rounds.jsonl" and rank() == late:
            time.sleep(2.0)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


@pytest.mark.parametrize("late", [0, 1])
def test_ranks_that_read_at_different_times_agree(tmp_path, monkeypatch, late):
    slow_reading(monkeypatch, late)
    for _ in range(2):
        assert run_ranks(tmp_path, lambda: fit(tmp_path, Slow("never", 0), 2)) == [None, None]
    assert [line["labeled"] for line in lines_of(tmp_path)] == [0, 9, 17]


def test_a_checkpoint_brings_labels_back_on_ranks_that_read_at_different_times(tmp_path, monkeypatch):
    """The ledger is lost, rank 0 writes it again from the checkpoint, and rank 1 reads it late."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    def by_hand(ckpt_path=None, epochs=1):
        active = learner(budget=33, folder=tmp_path / "run")
        saved = ModelCheckpoint(dirpath=tmp_path / "saved", save_last=True)
        trainer = quiet(
            tmp_path,
            active,
            saved,
            strategy="ddp",
            devices=2,
            limit_val_batches=0,
            enable_checkpointing=True,
            max_epochs=epochs,
        )
        trainer.fit(Shared(tmp_path), datamodule=Data(), ckpt_path=ckpt_path)

    assert run_ranks(tmp_path, by_hand) == [None, None]
    assert run_ranks(tmp_path, lambda: by_hand(tmp_path / "saved" / "last.ckpt", 2)) == [None, None]
    before = lines_of(tmp_path)
    (tmp_path / "run" / "rounds.jsonl").unlink()
    slow_reading(monkeypatch, 1)
    newest = max((tmp_path / "saved").glob("last*.ckpt"), key=lambda path: path.stat().st_mtime)
    assert run_ranks(tmp_path, lambda: by_hand(newest, 3)) == [None, None]
    assert [line["indices"] for line in lines_of(tmp_path)[:2]] == [line["indices"] for line in before[:2]]


@pytest.mark.parametrize("moment", ["setup", "loader"])
def test_a_rank_that_never_comes_is_named_by_those_who_wait(tmp_path, monkeypatch, moment):
    monkeypatch.setattr(arrival, "TIMEOUT_SECONDS", 2.0)

    def others_give_up():
        wait_until(lambda: all(error_of(tmp_path, other).exists() for other in (0, 1)))

    ends = run_ranks(tmp_path, lambda: fit(tmp_path, Slow(moment, others_give_up, late=2), 3), 3)
    for text in ends[:2]:
        assert "rank 2 " in text
        assert "2 seconds" in text
    assert not (tmp_path / "asked").exists()


def sigterm_where_a_rank_waits(monkeypatch, module, victim, begun):
    """Send it while the rank waits in this module, from the moment at which a file exists."""
    real = module.sigterm_ends_process

    def send(over):
        while not (begun.exists() or over.wait(0.02)):
            pass
        if not over.wait(0.2):
            os.kill(os.getpid(), signal.SIGTERM)

    @contextmanager
    def waits():
        over = threading.Event()
        with real():
            if rank() == victim:
                threading.Thread(target=send, args=(over,), daemon=True).start()
            try:
                yield
            finally:
                over.set()

    monkeypatch.setattr(module, "sigterm_ends_process", waits)


def until_it_is_gone(folder, other):
    """Returns when the process of another rank has ended."""
    pid = int((folder / f"process-{other}").read_text())

    def gone():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return "State:\tZ" in (Path("/proc") / str(pid) / "status").read_text()  # nobody has heard of it yet

    wait_until(gone)


@pytest.mark.parametrize("moment", ["setup", "loader"])
def test_sigterm_ends_a_rank_that_waits_at_the_start(tmp_path, monkeypatch, moment):
    sigterm_where_a_rank_waits(monkeypatch, arrival, 0, tmp_path / "late")

    def late():
        (tmp_path / "late").write_text("")
        until_it_is_gone(tmp_path, 0)

    def waits():
        (tmp_path / f"process-{rank()}").write_text(str(os.getpid()))
        fit(tmp_path, Slow(moment, late), 2)

    assert run_ranks(tmp_path, waits)[0] == signal.SIGTERM
    assert not (tmp_path / "asked").exists()


def test_sigterm_ends_a_rank_that_waits_for_an_answer(tmp_path, monkeypatch):
    sigterm_where_a_rank_waits(monkeypatch, rank_zero, 1, tmp_path / "asking")

    class Person(Asked):
        def __call__(self, indices):
            (tmp_path / "asking").write_text("")
            until_it_is_gone(tmp_path, 1)
            return super().__call__(indices)

    def waits():
        (tmp_path / f"process-{rank()}").write_text(str(os.getpid()))
        active = learner(budget=17, folder=tmp_path / "run", oracle=Person(tmp_path))
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, limit_val_batches=0)
        active.fit(trainer, Shared(tmp_path), datamodule=Data())

    ends = run_ranks(tmp_path, waits)
    assert ends[1] == signal.SIGTERM
    assert ends[0] is not None, "rank 0 hears of it when it goes on"
    stored = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    assert sum(len(line["indices"]) for line in stored) == 9, "and has stored what was answered"


def test_a_folder_in_use_is_refused_on_every_rank(tmp_path):
    from lightning_diffal.pool.folder.folder_lock import FolderLock

    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    ends = run_ranks(tmp_path, lambda: fit(tmp_path, Slow("never", 0), 2))
    assert all(f"process {os.getpid()} on" in text for text in ends)
    assert not (tmp_path / "asked").exists()
    lock.release()
    assert run_ranks(tmp_path, lambda: fit(tmp_path, Slow("never", 0), 2)) == [None, None]
