"""Several nodes, on one machine: what must be the same on all of them is checked before any work."""

import json
import os

import pytest

from tests.plugin.rank_processes import run_ranks
from tests.plugin.test_multi_process import Shared
from tests.plugin.toy_model import Clouds, Data, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore")


def fit(notes, data=None, root=None, **options):
    active = learner(budget=25, **options)
    trainer = quiet(root or notes, active, strategy="ddp", devices=1, num_nodes=2, limit_val_batches=0)
    active.fit(trainer, Shared(notes), datamodule=data or Data())


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr("lightning_diffal.plugin.distributed.shared_folder.TIMEOUT_SECONDS", 1.0)


def choices(folder):
    lines = (folder / "active_learning" / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["indices"] for line in lines]


def rank():
    return int(os.environ["RANK"])


def test_two_nodes_choose_as_one_process(tmp_path):
    folders = [tmp_path / "nodes", tmp_path / "alone"]
    for folder in folders:
        folder.mkdir()
    assert run_ranks(tmp_path, lambda: fit(folders[0]), nodes=2) == [None, None]
    active = learner(budget=25)
    active.fit(quiet(folders[1], active, limit_val_batches=0), Shared(folders[1]), datamodule=Data())
    assert choices(folders[0]) == choices(folders[1])
    names = {path.name for path in (folders[0] / "active_learning").iterdir()}
    assert names == {"rounds.jsonl", "selection.csv", "untrained.ckpt", "trained-3.ckpt"}, "and no file of ours is left"


@pytest.mark.parametrize("given", ["folder", "root"])
def test_a_folder_that_not_all_nodes_share_is_found_before_any_work(tmp_path, hasty, given):
    def on_its_own_disk():
        disk = tmp_path / f"disk-of-{rank()}"
        fit(tmp_path, **{given: disk})

    for text in run_ranks(tmp_path, on_its_own_disk, nodes=2):
        assert "MisconfigurationException: The folder of the run is" in text
        assert "is not seen by 1 of 2 ranks: rank 1 on " in text
        assert "disk-of-1" in text
        assert "folder=..., or the Trainer's default_root_dir, on a disk that all nodes share" in text
    assert not list(tmp_path.glob("disk-of-*/**/*.*")), "nothing was begun"


def test_it_is_also_found_where_one_node_has_a_run(tmp_path, hasty):
    """A run of one node continues with two: the ranks would not even begin at the same round."""

    def on_its_own_disk():
        fit(tmp_path, root=tmp_path / f"disk-of-{rank()}")

    disk = tmp_path / "disk-of-0"
    disk.mkdir()
    active = learner(budget=17)
    active.fit(quiet(disk, active, limit_val_batches=0), Shared(disk), datamodule=Data())
    before = choices(disk)
    for text in run_ranks(tmp_path, on_its_own_disk, nodes=2):
        assert "is not seen by 1 of 2 ranks: rank 1 on " in text
    assert choices(disk) == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for text in run_ranks(tmp_path, lambda: fit(tmp_path, folder=tmp_path / "file" / "inside"), nodes=2):
        assert "inside': rank 0 on " in text
        assert "cannot write to it: [Errno 20] Not a directory" in text


class Opinionated(Shared):
    """Logs what only its rank sees."""

    def training_step(self, batch, batch_idx):
        self.log("rank", float(self.global_rank))
        return super().training_step(batch, batch_idx)


def test_where_ranks_see_other_metrics_rank_0_decides_when_to_stop(tmp_path):
    def until(stopping):
        folder = tmp_path / f"until-{stopping}"
        folder.mkdir(exist_ok=True)
        active = learner(budget=25, folder=folder, stop_when=lambda history: history.metric("rank")[-1] == stopping)
        trainer = quiet(tmp_path, active, strategy="ddp", devices=1, num_nodes=2, limit_val_batches=0)
        return active.fit(trainer, Opinionated(folder), datamodule=Data()).labels

    def both():
        assert until(1.0) == [9, 17, 25]
        assert until(0.0) == [9]

    assert run_ranks(tmp_path, both, nodes=2) == [None, None]


class Moved(Data):
    def setup(self, stage):
        self.dataset.x = self.dataset.x + self.trainer.global_rank


class Shorter(Data):
    def setup(self, stage):
        self.dataset = Clouds(120 - self.trainer.global_rank)


@pytest.mark.parametrize("data", [Moved, Shorter])
def test_a_rank_that_sees_another_dataset_is_found_before_any_work(tmp_path, data):
    for text in run_ranks(tmp_path, lambda: fit(tmp_path, data()), nodes=2):
        assert "Rank 1 sees another training dataset than rank 0" in text
    assert not (tmp_path / "active_learning").exists()
