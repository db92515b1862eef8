"""`lightning-diffal check`, `repair` and `correct`, as a shell calls them."""

import json

import pytest

from lightning_diffal import ActiveLearning
from lightning_diffal.pool.folder.folder_lock import FolderLock
from lightning_diffal.selectors.random import RandomSelector
from lightning_diffal.studies.cli import main
from tests.plugin.toy_model import Clouds, Data, Net, quiet


@pytest.fixture
def run(tmp_path):
    """The folder of a run with ten labels that were paid for."""

    def oracle(indices):
        return Clouds().targets[indices].tolist()

    active = ActiveLearning(4, 10, selector=RandomSelector(), initial=6, oracle=oracle, folder=tmp_path / "run")
    active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), Net(), datamodule=Data())
    return tmp_path / "run"


def change_a_label(run):
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    lines[1]["labels"][0] += 1
    (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_check_says_whether_a_run_is_intact_also_while_it_is_under_way(run, capsys):
    assert main(["check", str(run)]) == 0
    assert "is intact: 3 rounds, 10 labels." in capsys.readouterr().out
    lock = FolderLock(run)
    lock.acquire()
    assert main(["check", str(run)]) == 0
    assert "In use by process" in capsys.readouterr().out
    lock.release()
    change_a_label(run)
    assert main(["check", str(run)]) == 1
    printed = capsys.readouterr()
    assert "rounds.jsonl, line 2: its checksum does not match" in printed.err
    assert "is damaged" in printed.out


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_what_is_not_the_folder_of_a_run_is_not_intact(tmp_path, name, capsys):
    assert main(["check", str(tmp_path / name)]) == 1
    assert "this is not the folder of a run" in capsys.readouterr().err


def test_repair_makes_a_run_intact_and_says_where_the_copy_is(run, capsys):
    change_a_label(run)
    assert main(["repair", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "the last 2 lines were cut off; their rounds are run again. A copy is in" in printed
    assert "4 answers wait for their round." in printed


def test_correct_changes_one_label_and_refuses_what_has_none(run, capsys):
    line = json.loads((run / "rounds.jsonl").read_text().splitlines()[0])
    point, wrong = line["indices"][0], line["labels"][0]
    assert main(["correct", str(run), str(point), str((wrong + 1) % 3)]) == 0
    assert f"point {point}: {wrong} is now {(wrong + 1) % 3}." in capsys.readouterr().out
    assert main(["check", str(run)]) == 0
    unknown = next(index for index in range(120) if str(index) not in (run / "selection.csv").read_text())
    assert main(["correct", str(run), str(unknown), "1"]) == 2
    assert "has no label" in capsys.readouterr().err
    lock = FolderLock(run)
    lock.acquire()
    assert main(["correct", str(run), str(point), "0"]) == 2
    assert "is in use by another callback of this process" in capsys.readouterr().err
    lock.release()
