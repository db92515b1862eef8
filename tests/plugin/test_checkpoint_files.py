"""Checkpoints of the run folder: on the disk before the ledger relies on them, and no code is run from them."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal.studies.cli import main
from tests.plugin.toy_model import Data, Net, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore:.*Be aware that when using `ckpt_path`")


def fit(tmp_path, *callbacks, model=None, budget=17, **options):
    active = learner(budget=budget, **options)
    return active.fit(quiet(tmp_path, active, *callbacks), model or Net(), datamodule=Data())


def run_folder(tmp_path):
    return tmp_path / "active_learning"


def choices(tmp_path):
    lines = (run_folder(tmp_path) / "rounds.jsonl").read_text().splitlines()
    return [(json.loads(line)["indices"], json.loads(line)["labels"]) for line in lines]


def cut_ledger(tmp_path, lines):
    path = run_folder(tmp_path) / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))


def emptied(path):
    path.write_bytes(b"")


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def overwritten(path):
    """Still a whole archive, and some numbers in it are others."""
    content = bytearray(path.read_bytes())
    place = content.find(b"data.pkl") + 200
    content[place : place + 64] = os.urandom(64)
    path.write_bytes(content)


DAMAGES = [emptied, truncated, zeroed, overwritten]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_cold_run_heals_a_damaged_untrained_checkpoint(tmp_path, damage):
    fit(tmp_path)
    before = choices(tmp_path)
    cut_ledger(tmp_path, 2)
    damage(run_folder(tmp_path) / "untrained.ckpt")
    with pytest.warns(UserWarning, match=r"untrained\.ckpt"):
        fit(tmp_path)
    assert choices(tmp_path) == before
    torch.load(run_folder(tmp_path) / "untrained.ckpt", weights_only=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_warm_run_names_a_damaged_checkpoint_and_what_to_do(tmp_path, damage):
    fit(tmp_path, warm_start=True, budget=25)
    cut_ledger(tmp_path, 3)
    kept = choices(tmp_path)
    newest = run_folder(tmp_path) / "trained-2.ckpt"
    damage(newest)
    with pytest.raises(MisconfigurationException, match=r"trained-2\.ckpt.*(damaged|empty).*warm_start=False"):
        fit(tmp_path, warm_start=True, budget=25)
    assert choices(tmp_path) == kept
    fit(tmp_path, warm_start=False, budget=25)


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_weights_of_a_finished_run_are_named_if_they_are_damaged(tmp_path, damage):
    fit(tmp_path)
    damage(run_folder(tmp_path) / "trained-2.ckpt")
    with pytest.warns(UserWarning, match=r"trained-2\.ckpt"):
        history = fit(tmp_path)
    assert history.labels == [9, 17], "the labels are there"


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_no_code_is_run_from_files_of_the_folder(tmp_path):
    fit(tmp_path, warm_start=True)
    for name, lines in (("trained-2.ckpt", 3), ("trained-1.ckpt", 2), ("untrained.ckpt", 1)):
        path = run_folder(tmp_path) / name
        torch.save({"state_dict": Bomb(tmp_path / "exploded")}, path)
        cut_ledger(tmp_path, lines)
        try:
            with pytest.warns(UserWarning, match=name):
                fit(tmp_path, warm_start=True)
        except (MisconfigurationException, pytest.fail.Exception):
            pass
        assert not (tmp_path / "exploded").exists(), name
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists(), "the bomb is one"


class AnyHyperparameters(Net):
    def __init__(self, where=Path("data"), scale=None, thing=None):
        super().__init__()
        self.save_hyperparameters("where", "scale", "thing")


def test_hyperparameters_of_any_type_are_no_obstacle(tmp_path):
    fit(tmp_path, model=AnyHyperparameters(scale=np.float64(2.0), thing=object), budget=17)
    for path in run_folder(tmp_path).glob("*.ckpt"):
        torch.load(path, weights_only=True)
    fit(tmp_path, model=AnyHyperparameters(scale=np.float64(2.0), thing=object), budget=25)


class Odd(Net):
    """Its state is of a type that weights_only does not load."""

    def on_save_checkpoint(self, checkpoint):
        checkpoint["path"] = Path("a")


def test_a_state_that_needs_a_pickle_is_named_before_training_and_allowed_when_the_user_says_so(tmp_path):
    model = Odd()
    with pytest.raises(MisconfigurationException, match=r"Path.*weights_only=False"):
        fit(tmp_path, model=model)
    assert all(entry["steps"] == 0 for entry in model.diary)
    assert fit(tmp_path, model=Odd(), weights_only=False).labels == [9, 17]


def test_what_the_ledger_relies_on_is_flushed_before_its_line(tmp_path):
    """Noted by the calls themselves: every checkpoint, and every folder that names a new file, before the line."""
    events = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        events.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        real_fsync(descriptor)

    def replace(source, target):
        events.append(("replace", str(source), str(target)))
        real_replace(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "replace", replace)
        fit(tmp_path / "new" / "deep", warm_start=True)
    folder = str(run_folder(tmp_path / "new" / "deep"))
    ledger = [place for place, event in enumerate(events) if event == ("fsync", f"{folder}/rounds.jsonl")]
    for number, line in ((1, 1), (2, 2)):
        renamed = next(
            place
            for place, event in enumerate(events)
            if event[0] == "replace" and f"trained-{number}.ckpt" in event[2]
        )
        flushed = [event for event in events[:renamed] if event[0] == "fsync" and event[1] == events[renamed][1]]
        assert flushed, f"trained-{number}.ckpt had its content on the disk before it had its name"
        named = [place for place, event in enumerate(events) if event == ("fsync", folder) and place > renamed]
        assert renamed < named[0] < ledger[line], "and its name before the ledger's line"
    for parent in (tmp_path, tmp_path / "new", tmp_path / "new" / "deep"):
        assert ("fsync", str(parent)) in events, "new folders are named on the disk by their parents"


def test_the_command_line_needs_no_checkpoint_to_report(tmp_path):
    fit(tmp_path)
    for path in run_folder(tmp_path).glob("*.ckpt"):
        path.unlink()
    assert main(["check", str(run_folder(tmp_path))]) == 0
