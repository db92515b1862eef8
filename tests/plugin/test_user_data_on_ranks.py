"""Two ranks: samplers, augmentation and unlabeled loaders of the user's own."""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tests.plugin.counting import Recorder, Small, asks_first, labeled_by_fit
from tests.plugin.rank_processes import run_ranks
from tests.plugin.test_fingerprint import OwnGenerator, rows
from tests.plugin.test_user_samplers import INVERSE, LABELS, BalancedBatches, pool
from tests.plugin.toy_model import quiet

pytestmark = pytest.mark.filterwarnings("ignore")


def drawn_by_ranks(tmp_path, make_loader):
    """For each fit and epoch, what each of two ranks drew."""

    def rank():
        dataset = pool()
        recorder = Recorder(dataset)
        active = asks_first(budget=60, initial=40, query_size=20)
        trainer = quiet(tmp_path, active, recorder, strategy="ddp", devices=2, max_epochs=2)
        active.fit(trainer, Small(), make_loader(dataset))
        (tmp_path / f"drawn-{trainer.global_rank}.json").write_text(json.dumps(recorder.fits))

    assert run_ranks(tmp_path, rank) == [None, None]
    ranks = [json.loads((tmp_path / f"drawn-{rank}.json").read_text()) for rank in range(2)]
    for fits in ranks:
        for epochs, labeled in zip(fits, labeled_by_fit(tmp_path), strict=False):
            assert all(set(drawn) <= labeled and drawn for drawn in epochs)
    return [[(first, second) for first, second in zip(*epochs, strict=True)] for epochs in zip(*ranks, strict=True)]


def test_ranks_share_the_draws_of_a_class_balanced_batch_sampler(tmp_path):
    fits = drawn_by_ranks(tmp_path, lambda d: DataLoader(d, batch_sampler=BalancedBatches(LABELS, 2, 5, 12)))
    for epochs in fits:
        for first, second in epochs:
            assert len(first) == len(second) == 60, "120 draws in all"


def test_ranks_share_the_draws_of_a_weighted_sampler(tmp_path):
    sampler = torch.utils.data.WeightedRandomSampler(INVERSE, 64)
    for epochs in drawn_by_ranks(tmp_path, lambda d: DataLoader(d, batch_size=8, sampler=sampler)):
        for first, second in epochs:
            assert len(first) == len(second) == 32


@pytest.mark.parametrize("chance", [1.0, 0.05])
def test_ranks_agree_on_a_dataset_with_a_generator_of_its_own(tmp_path, chance):
    def rank():
        active = asks_first(budget=28)
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, max_epochs=1)
        loader = DataLoader(OwnGenerator(rows(), chance, seed=None), batch_size=8, shuffle=True)
        assert active.fit(trainer, Small(), loader).labels == [12, 20, 28]

    assert run_ranks(tmp_path, rank) == [None, None]


def test_ranks_notice_another_order_behind_augmentation(tmp_path):
    def rank():
        active = asks_first()
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, max_epochs=1)
        data = rows() if trainer.global_rank == 0 else np.ascontiguousarray(rows()[::-1])
        active.fit(trainer, Small(), DataLoader(OwnGenerator(data), batch_size=8, shuffle=True))

    assert all("sees another training dataset" in str(ended) for ended in run_ranks(tmp_path, rank))


def test_ranks_share_an_unlabeled_loader_without_its_labels(tmp_path):
    class Both(Small):
        hidden, inputs = (), set()

        def training_step(self, batch, batch_idx):
            self.hidden = (*self.hidden, *batch["u"][1].tolist())
            self.inputs = self.inputs | set(batch["u"][0][:, 0].tolist())
            return cross_entropy(self(batch["l"][0]), batch["l"][1]) + self(batch["u"][0]).square().mean()

    def rank():
        dataset, model, active = pool(), Both(), asks_first(unlabeled="u", budget=20)
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, max_epochs=1)
        loaders = {"l": DataLoader(dataset, batch_size=4, shuffle=True), "u": DataLoader(dataset, batch_size=50)}
        active.fit(trainer, model, loaders)
        assert set(model.hidden) == {-1}
        assert len(model.inputs) == 150, "half of the pool on each rank"

    assert run_ranks(tmp_path, rank) == [None, None]
