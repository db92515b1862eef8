"""A run that is over, and a run whose model was changed."""

import json

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.optim import SGD, lr_scheduler

from tests.plugin.fresh_fit import TracedNet
from tests.plugin.toy_model import Data, learner, quiet


def lines_of(tmp_path):
    text = (tmp_path / "active_learning" / "rounds.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def finished(tmp_path, **options):
    active, model = learner(budget=17, **options), TracedNet()
    active.fit(quiet(tmp_path, active), model, datamodule=Data())
    return model


def one_cycle(module):
    optimizer = SGD(module.parameters(), 0.1)
    total = int(module.trainer.estimated_stepping_batches)
    return [optimizer], [{"scheduler": lr_scheduler.OneCycleLR(optimizer, 0.2, total), "interval": "step"}]


@pytest.mark.parametrize(
    "options",
    [{}, {"min_epochs": 2}, {"min_steps": 3}, {"max_steps": 4, "max_epochs": -1}, {"num_sanity_val_steps": 2}],
    ids=str,
)
@pytest.mark.parametrize("configure", [None, one_cycle])
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step")
def test_trainer_fit_on_a_run_that_is_over_trains_nothing_and_adds_no_line(tmp_path, caplog, options, configure):
    trained, before = finished(tmp_path), lines_of(tmp_path)
    active, model, saving = learner(budget=17), TracedNet(configure), ModelCheckpoint(tmp_path / "saved")
    trainer = quiet(tmp_path, active, saving, enable_checkpointing=True, **options)
    trainer.fit(model, datamodule=Data())
    assert model.diary == []
    assert lines_of(tmp_path) == before
    assert not (tmp_path / "saved").exists()
    message = "is over (budget): 2 rounds, 17 labels. Nothing is trained; another folder=... starts a new run"
    assert message in caplog.text
    assert active.history.labels == [9, 17]
    assert trainer.min_steps == options.get("min_steps"), "the Trainer is as it was"
    assert trainer.min_epochs == options.get("min_epochs", "min_steps" in options)
    weights = zip(trained.state_dict().values(), model.state_dict().values(), strict=True)
    assert all(torch.equal(theirs, ours) for theirs, ours in weights), "with the weights of its last round"


def test_rounds_by_hand_end_with_the_budget(tmp_path):
    trained = []
    for _ in range(5):
        active, model = learner(), TracedNet()
        quiet(tmp_path, active).fit(model, datamodule=Data())
        trained.append(len(model.diary))
    assert trained == [1, 1, 1, 1, 0]
    assert len(lines_of(tmp_path)) == 5


def test_a_larger_budget_by_hand_goes_on(tmp_path):
    finished(tmp_path)
    active, model = learner(budget=25), TracedNet()
    quiet(tmp_path, active).fit(model, datamodule=Data())
    assert [line["labeled"] for line in lines_of(tmp_path)] == [0, 9, 17, 17]
    assert len(model.diary) == 1


class Wider(TracedNet):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 3)


class Deeper(TracedNet):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (Wider, r"backbone.0.weight is \(32, 2\), where it was \(16, 2\)"),
        (Deeper, r"extra.weight is new"),
    ],
)
@pytest.mark.parametrize("over", [False, True])
def test_a_changed_model_is_refused_in_words(tmp_path, change, found, over):
    finished(tmp_path)
    before = lines_of(tmp_path)
    active, model = learner(budget=17 if over else 25), change()
    with pytest.raises(MisconfigurationException, match=rf"another model: {found}.*as it was.*folder=\.\.\."):
        active.fit(quiet(tmp_path, active), model, datamodule=Data())
    assert lines_of(tmp_path) == before
    assert model.diary == []


def test_a_model_that_has_lost_a_layer_is_refused_in_words(tmp_path):
    active = learner(budget=17)
    active.fit(quiet(tmp_path, active), Deeper(), datamodule=Data())
    active = learner(budget=25)
    with pytest.raises(MisconfigurationException, match=r"another model: extra.weight is gone"):
        active.fit(quiet(tmp_path, active), TracedNet(), datamodule=Data())


class Growing(TracedNet):
    """Makes a buffer in its first training step."""

    def training_step(self, batch, batch_idx):
        if not hasattr(self, "mean"):
            self.register_buffer("mean", batch[0].mean(0))
        return super().training_step(batch, batch_idx)


def test_a_model_that_grows_in_training_is_refused_before_labels_are_spent_on_it(tmp_path):
    active = learner()
    with pytest.raises(MisconfigurationException, match=r"changed the layers .* mean is new.* __init__ .*Nothing was"):
        active.fit(quiet(tmp_path, active), Growing(), datamodule=Data())
    assert len(lines_of(tmp_path)) == 1, "the first labels only"
    active = learner(initial=33, folder=tmp_path / "one")
    assert active.fit(quiet(tmp_path, active), Growing(), datamodule=Data()).labels == [33], "one round needs no other"


def test_fast_dev_run_asks_nobody(tmp_path):
    def oracle(indices):
        raise AssertionError("a person was asked")

    active, model = learner(oracle=oracle), TracedNet()
    active.fit(quiet(tmp_path, active, fast_dev_run=True), model, datamodule=Data())
    assert model.diary[0]["steps"] == 1
