"""Where each round's checkpoints and curves are found."""

import csv
import json
import os
from pathlib import Path

import fsspec
import lightning as L  # noqa: N812
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import Logger

from tests.forked_script import run_script
from tests.plugin.fresh_fit import TracedNet
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import Data, learner, quiet

NAMES = {"best.ckpt", "last.ckpt"}


def best(folder, **options):
    return ModelCheckpoint(folder, filename="best", monitor="val_acc", mode="max", save_last=True, **options)


def round_of(path, active):
    """The round a checkpoint was written in: the ledger held the rounds before it."""
    return len(torch.load(path, weights_only=True)["callbacks"][active.state_key]["records"])


def found(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*.ckpt")}


def per_round(*rounds):
    return NAMES | {f"round_{number:03}/{name}" for number in rounds for name in NAMES}


@pytest.mark.parametrize("made", ["one Trainer", "a function"])
def test_a_fixed_name_is_the_newest_rounds_and_earlier_ones_have_a_folder(tmp_path, made):
    active, saved = learner(), tmp_path / "saved"

    def make():
        return quiet(tmp_path, active, best(saved), enable_checkpointing=True)

    active.fit(make() if made == "one Trainer" else make, TracedNet(), datamodule=Data())
    assert found(saved) == per_round(1, 2, 3)
    for name in NAMES:
        assert round_of(saved / name, active) == 4
        assert [round_of(saved / f"round_{number:03}" / name, active) for number in (1, 2, 3)] == [1, 2, 3]


def test_the_path_the_callback_gives_is_the_one_with_the_fixed_name(tmp_path):
    active, saving = learner(), best(tmp_path / "saved")
    active.fit(quiet(tmp_path, active, saving, enable_checkpointing=True), TracedNet(), datamodule=Data())
    assert Path(saving.best_model_path).resolve() == (tmp_path / "saved" / "best.ckpt").resolve()
    assert Path(saving.last_model_path).resolve() == (tmp_path / "saved" / "last.ckpt").resolve()


def test_links_stay_good(tmp_path):
    active, saving = learner(budget=17), ModelCheckpoint(tmp_path / "saved", filename="best", save_last="link")
    active.fit(quiet(tmp_path, active, saving, enable_checkpointing=True), TracedNet(), datamodule=Data())
    for folder, number in ((tmp_path / "saved" / "round_001", 1), (tmp_path / "saved", 2)):
        assert (folder / "last.ckpt").is_symlink()
        assert round_of(folder / "last.ckpt", active) == number


def test_files_that_were_there_before_are_left_alone(tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "best.ckpt").write_text("somebody's")
    (saved / "notes.txt").write_text("somebody's")
    active = learner(budget=17)
    active.fit(quiet(tmp_path, active, best(saved), enable_checkpointing=True), TracedNet(), datamodule=Data())
    assert (saved / "best.ckpt").read_text() == (saved / "notes.txt").read_text() == "somebody's"
    assert round_of(saved / "round_001" / "best-v1.ckpt", active) == 1
    assert round_of(saved / "best-v1.ckpt", active) == 2


def test_rounds_by_hand_too(tmp_path):
    saved = tmp_path / "saved"
    for _ in range(3):
        active = learner()
        trainer = quiet(tmp_path, active, best(saved), enable_checkpointing=True)
        trainer.fit(TracedNet(), datamodule=Data())
    assert found(saved) == per_round(1, 2)
    assert round_of(saved / "best.ckpt", active) == 3


def test_a_fit_resumed_by_hand_keeps_its_own_checkpoints(tmp_path):
    saved = tmp_path / "saved"

    class Stops(TracedNet):
        def on_train_epoch_start(self):
            if self.current_epoch == 2:
                raise KeyboardInterrupt

    active = learner()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        quiet(tmp_path, active, best(saved), enable_checkpointing=True, max_epochs=4).fit(Stops(), datamodule=Data())
    assert found(saved) == NAMES
    active = learner()
    trainer = quiet(tmp_path, active, best(saved), enable_checkpointing=True, max_epochs=4)
    trainer.fit(TracedNet(), datamodule=Data(), ckpt_path=saved / "last.ckpt")
    assert found(saved) == NAMES
    assert torch.load(saved / "last.ckpt", weights_only=True)["epoch"] == 3


SCRIPT = """
import os
from pathlib import Path
from tests.forked_script import run_script
from tests.plugin.fresh_fit import TracedNet
from tests.plugin.test_checkpoint_names import best
from tests.plugin.toy_model import Data, learner, quiet
class Killed(TracedNet):
    def on_train_epoch_start(self):
        if len(self.fits) == 2 and self.current_epoch == 2:
            os._exit(7)
active, path = learner(), Path({path!r})
trainer = quiet(path, active, best(path / "saved"), enable_checkpointing=True, max_epochs=4)
active.fit(trainer, Killed(), datamodule=Data())
"""


def test_killed_and_resumed_the_names_stay_right(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(path=str(tmp_path)))
    ended = run_script(script)
    assert ended.returncode == 7, ended.stderr
    saved = tmp_path / "saved"
    assert found(saved) == per_round(1)
    active = learner()
    trainer = quiet(tmp_path, active, best(saved), enable_checkpointing=True, max_epochs=4)
    active.fit(trainer, TracedNet(), datamodule=Data())
    assert found(saved) == per_round(1, 2, 3) | {f"interrupted/{name}" for name in NAMES}
    assert [round_of(saved / f"round_{number:03}" / "best.ckpt", active) for number in (1, 2, 3)] == [1, 2, 3]
    assert torch.load(saved / "round_002" / "last.ckpt", weights_only=True)["epoch"] == 3, "the whole of round 2"


@pytest.mark.filterwarnings("ignore")
def test_several_processes_move_each_file_once(tmp_path):
    saved = tmp_path / "saved"

    def fit():
        active = learner(budget=25)
        trainer = quiet(tmp_path, active, best(saved), enable_checkpointing=True, strategy="ddp", devices=2)
        active.fit(trainer, TracedNet(), datamodule=Data())

    assert run_ranks(tmp_path, fit) == [None, None]
    assert found(saved) == per_round(1, 2)
    assert [round_of(saved / f"{name}best.ckpt", learner()) for name in ("round_001/", "round_002/", "")] == [1, 2, 3]


def test_folders_that_are_not_on_this_disk(tmp_path):
    active, saving = learner(budget=25), best("memory://saved")
    active.fit(quiet(tmp_path, active, saving, enable_checkpointing=True), TracedNet(), datamodule=Data())
    files = {path.removeprefix("/saved/") for path in fsspec.filesystem("memory").find("/saved")}
    assert files == per_round(1, 2)


# Loggers


class Notes(Logger):
    """A logger of a stranger's: keeps what it is given."""

    name, version = "notes", 0

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))

    def log_hyperparams(self, params, *args, **kwargs):
        pass

    def steps_of(self, name):
        return [step for step, metrics in self.rows if name in metrics]


def fitted(tmp_path, logger, budget=25, **options):
    active = learner(budget=budget)
    trainer = quiet(tmp_path, active, logger=logger, log_every_n_steps=1, **options)
    active.fit(trainer, TracedNet(), datamodule=Data(batch_size=4))
    return active


def test_the_steps_of_a_logger_go_on_from_round_to_round(tmp_path):
    notes = Notes()
    active = fitted(tmp_path, notes)
    assert [row["steps"] for row in active.history] == [4, 8, 12]
    assert notes.steps_of("loss") == list(range(24))
    assert notes.steps_of("active/labels") == [1, 2, 3], "rounds are counted by themselves"


def test_a_run_that_goes_on_in_another_process_goes_on_in_its_curves(tmp_path):
    first, second = Notes(), Notes()
    fitted(tmp_path, first, budget=17)
    active = learner(budget=25)
    with (tmp_path / "active_learning" / "rounds.jsonl").open() as file:
        lines = file.readlines()
    (tmp_path / "active_learning" / "rounds.jsonl").write_text("".join(lines[:2]))
    trainer = quiet(tmp_path, active, logger=second, log_every_n_steps=1)
    active.fit(trainer, TracedNet(), datamodule=Data(batch_size=4))
    assert first.steps_of("loss") == list(range(12))
    assert second.steps_of("loss") == list(range(4, 24))


def test_one_table_of_lightnings_csv_logger_holds_all_rounds(tmp_path):
    logger = CSVLogger(tmp_path / "logs")
    fitted(tmp_path, logger)
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    assert [int(row["step"]) for row in rows] == list(range(24))


def test_training_does_not_see_the_steps_of_the_logger(tmp_path):
    seen = []

    class Look(L.Callback):
        def on_train_start(self, trainer, pl_module):
            seen.append((trainer.global_step, trainer.current_epoch))

    active = learner(budget=25)
    active.fit(quiet(tmp_path, active, Look(), logger=Notes()), TracedNet(), datamodule=Data())
    assert seen == [(0, 0)] * 3


def test_the_ledger_counts_optimizer_steps(tmp_path):
    active = learner(budget=25)
    trainer = quiet(tmp_path, active, accumulate_grad_batches=2)
    active.fit(trainer, TracedNet(), datamodule=Data(batch_size=4))
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["steps"] for line in lines] == [0, 2, 4, 6], os.linesep.join(lines)
