"""Several processes: the same choice on each, every labeled point trained on, no unlabeled one."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, DistributedSampler

from lightning_diffal import ActiveLearning
from lightning_diffal.numerics.pca import principal_components
from tests.forked_script import run_script
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import Data, Net, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore")


class Shared(Net):
    """Learns nothing, so that its embedding does not depend on how batches were shared; writes what it drew."""

    def __init__(self, folder=None):
        super().__init__(lr=0.0)
        self.folder, self.backbone = folder, nn.Sequential(nn.Linear(2, 16), nn.ReLU())

    def on_train_epoch_end(self):
        super().on_train_epoch_end()
        note = {"labels": len(self.trainer.train_dataloader.dataset), "drawn": self.diary[-1]["drawn"][-1]}
        with (self.folder / f"drawn-{self.global_rank}.jsonl").open("a") as file:
            file.write(json.dumps(note | {"epoch": self.current_epoch}) + "\n")


def encoder():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 9), nn.ReLU())


def run(folder, strategy, world, data=None, **options):
    folder.mkdir()
    active = learner(budget=25, features=encoder(), feature_dim=4, criterion="paper")

    def make():
        return quiet(folder, active, strategy=strategy, devices=world, limit_val_batches=0, **options)

    history = active.fit(make, Shared(folder), datamodule=data or Data())
    assert history.labels == [9, 17, 25]
    lines = (folder / "active_learning" / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def check_training(folder, lines, world):
    """In every epoch of every round the ranks together draw each labeled point, and none of them another."""
    notes = [
        json.loads(line) for rank in range(world) for line in (folder / f"drawn-{rank}.jsonl").read_text().splitlines()
    ]
    known = []
    for line in lines[:3]:
        known += line["indices"]
        for epoch in (0, 1):
            drawn = [note["drawn"] for note in notes if note["labels"] == len(known) and note["epoch"] == epoch]
            assert len(drawn) == world
            assert {index for part in drawn for index in part} == set(known)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    lines = run(folder, "auto", 1)
    check_training(folder, lines, 1)
    return lines


@pytest.mark.parametrize("world", [2, 3])
def test_the_choice_is_that_of_one_process_index_by_index(tmp_path, alone, world):
    lines = run(tmp_path / "run", "ddp_fork", world)
    for ours, theirs in zip(lines, alone, strict=True):
        assert ours["indices"] == theirs["indices"]
        assert ours["labels"] == theirs["labels"]
    check_training(tmp_path / "run", lines, world)
    with np.load(tmp_path / "run" / "active_learning" / "features.npz") as file:
        x = encoder()(Data().dataset.x).detach()
        expected = normalize(principal_components(x, 4), dim=1)
        torch.testing.assert_close(torch.from_numpy(file["features"]), expected)


def rank():
    return int(os.environ["RANK"])


@pytest.mark.parametrize("immediate", [False, True])
def test_ranks_that_choose_other_points_are_stopped_before_anyone_is_asked(tmp_path, immediate):
    class Oracle:
        def __init__(self):
            self.immediate = immediate

        def __call__(self, indices):
            with (tmp_path / "asked").open("a") as file:
                file.write(f"{len(indices)}\n")
            return [0] * len(indices)

    def by_rank(snapshot, size, *, answer):
        chosen = snapshot.unlabeled[rank() : rank() + size]
        answer(chosen)
        return chosen

    def fit():
        active = ActiveLearning(query_size=8, budget=25, initial=9, selector=by_rank, oracle=Oracle())
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, limit_val_batches=0)
        active.fit(trainer, Shared(tmp_path), datamodule=Data())

    for text in run_ranks(tmp_path, fit):
        assert "RuntimeError: Rank 1 chose other points than rank 0" in text
    assert (tmp_path / "asked").read_text() == "9\n", "the first labels, and no query"
    assert len((tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()) == 1


class OwnSampler(Data):
    """Shares the points out itself, as users do who turn Lightning's sampler off."""

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=8, sampler=DistributedSampler(self.dataset))


@pytest.mark.parametrize("data", [OwnSampler, Data])
def test_without_lightnings_own_sampler(tmp_path, alone, data):
    lines = run(tmp_path / "run", "ddp_fork", 2, data(), use_distributed_sampler=False)
    assert [line["indices"] for line in lines] == [line["indices"] for line in alone]
    check_training(tmp_path / "run", lines, 2)


def test_more_ranks_than_points_share_evenly(tmp_path):
    from lightning_diffal.plugin.model.shards import shard_of_rank

    for n in (1, 2, 5, 7, 12):
        for world in (1, 2, 3, 8):
            shares = [shard_of_rank(list(range(100, 100 + n)), rank, world) for rank in range(world)]
            assert len({len(share) for share in shares}) == 1
            interleaved = [share[place] for place in range(len(shares[0])) for share in shares][:n]
            assert interleaved == list(range(100, 100 + n))


def test_a_rank_that_sees_other_data_is_found_before_any_work(tmp_path):
    class Own(Data):
        def setup(self, stage):
            self.dataset.x = self.dataset.x + self.trainer.global_rank

    active = learner()
    with pytest.raises(Exception, match="Rank 1 sees another training dataset than rank 0"):
        active.fit(lambda: quiet(tmp_path, active, strategy="ddp_fork", devices=2), Shared(tmp_path), datamodule=Own())
    assert not (tmp_path / "active_learning").exists()


class Sharded(Shared):
    """Its weights are shared out among the ranks."""

    def configure_model(self):
        if not isinstance(self.head, FSDPModule):  # Lightning calls it again in every fit
            for part in (self.backbone, self.head):
                fully_shard(part, mesh=self.device_mesh["data_parallel"])

    def on_train_start(self):
        self.diary.append({"steps": 0, "drawn": []})
        self.recorded().recording, self.recorded().drawn = True, []


SCRIPT = """
import sys, warnings
sys.path.insert(0, {root!r})
import torch
from pathlib import Path
from lightning.pytorch.strategies import ModelParallelStrategy
from tests.plugin.test_multi_process import Data, Sharded, Shared, learner, quiet
warnings.simplefilter("ignore")
torch.set_num_threads(1)
if __name__ == "__main__":
    active = learner(budget=25)
    folder = Path({folder!r})
    trainer = quiet(folder, active, strategy={strategy}, devices=2, limit_val_batches=0)
    active.fit(trainer, {model}(folder), datamodule=Data())
"""


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("'ddp'", "Shared"),
        ("ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)", "Sharded"),
    ],
)
def test_one_trainer_started_as_a_script(tmp_path, alone, strategy, model):
    script = tmp_path / "train.py"
    root = str(Path(__file__).parents[2])
    script.write_text(SCRIPT.format(root=root, folder=str(tmp_path), strategy=strategy, model=model))
    ended = run_script(script)  # rank 0; Lightning starts rank 1 from nothing
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    assert [line["indices"] for line in lines] == [line["indices"] for line in alone]
    check_training(tmp_path, lines, 2)
