"""The script started twice: one run goes on, the other is refused, and no label is paid for twice."""

import io
import multiprocessing
import os
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from lightning_diffal import ActiveLearning
from lightning_diffal.selectors.random import RandomSelector
from tests.plugin.toy_model import Clouds, Data, Net, quiet

pytestmark = pytest.mark.filterwarnings("ignore")
PAIRS = 300 if os.environ.get("SLOW") else 20
FIRST = 10


def run(folder, gate, number):
    """One of two processes that start at the same time."""
    torch.set_num_threads(1)

    def paid(indices):
        with (folder / "asked").open("a") as file:
            file.write("".join(f"{index}\n" for index in indices))
        time.sleep(0.05)  # a person takes longer still
        return Clouds().targets[indices].tolist()

    active = ActiveLearning(5, FIRST, selector=RandomSelector(), initial=FIRST, oracle=paid)
    trainer = quiet(folder, active, max_epochs=1, limit_val_batches=0)
    note, code = folder / f"refused-{number}", 0
    gate.wait()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            active.fit(trainer, Net(), datamodule=Data())
        except Exception as error:
            note.write_text(f"{type(error).__name__}: {error}")
            code = 1
    os._exit(code)


def start_two(folder):
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(2)
    processes = [context.Process(target=run, args=(folder, gate, number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert not any(process.is_alive() for process in processes)
    return [process.exitcode for process in processes], [process.pid for process in processes]


def asked(folder):
    return [int(line) for line in (folder / "asked").read_text().split()]


def test_of_two_simultaneous_starts_one_pays(tmp_path):
    refused = 0
    for pair in range(PAIRS):
        folder = tmp_path / str(pair)
        folder.mkdir()
        codes, pids = start_two(folder)
        assert len(asked(folder)) == len(set(asked(folder))) == FIRST, "each label was paid for once"
        assert len((folder / "active_learning" / "rounds.jsonl").read_text().splitlines()) == 2
        assert 0 in codes, [note.read_text() for note in folder.glob("refused-*")]
        for number in (place for place, code in enumerate(codes) if code):
            refused += 1
            text = (folder / f"refused-{number}").read_text()
            assert text.startswith("FolderInUseError: folder=")
            assert f"process {pids[1 - number]} on " in text
            assert "since 20" in text
    assert refused > PAIRS // 2, "they did meet"


def test_a_folder_of_a_finished_run_is_free(tmp_path):
    for budget in (10, 15):
        active = ActiveLearning(5, budget, selector=RandomSelector(), initial=10)
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
        assert not list(Path(tmp_path / "active_learning").glob(".*"))


def test_rounds_by_hand_in_one_process_own_the_folder_one_after_another(tmp_path):
    active = ActiveLearning(5, 20, selector=RandomSelector(), initial=10)
    for labels in (15, 20):
        quiet(tmp_path, active).fit(Net(), datamodule=Data())
        assert len((tmp_path / "active_learning" / "selection.csv").read_text().splitlines()) == 1 + labels
    other = ActiveLearning(5, 25, selector=RandomSelector(), initial=10)
    quiet(tmp_path, other).fit(Net(), datamodule=Data())


def test_a_fit_that_fails_frees_the_folder(tmp_path):
    class Broken(Net):
        def training_step(self, batch, batch_idx):
            raise ArithmeticError("mine")

    for kind in (Broken, Net):
        active = ActiveLearning(5, 15, selector=RandomSelector(), initial=10)
        trainer = quiet(tmp_path, active)
        if kind is Broken:
            with pytest.raises(ArithmeticError):
                trainer.fit(kind(), datamodule=Data())
            with pytest.raises(ArithmeticError):
                active.fit(quiet(tmp_path, active), kind(), datamodule=Data())
        else:
            active.fit(trainer, kind(), datamodule=Data())
