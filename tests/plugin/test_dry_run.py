"""Whatever can be refused is refused before a label is spent: several batches pass the model before the first fit."""

import lightning as L  # noqa: N812
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from tests.plugin.counting import Counted, Recorder, Small, Snapshots, Trains, asks_first
from tests.plugin.toy_model import quiet

N, CLASSES = 64, 4


def points():
    return torch.randn(N, 8, generator=torch.Generator().manual_seed(0))


def pool(items=None):
    return Counted(items or [(x, index % CLASSES) for index, x in enumerate(points())])


def refused(tmp_path, model, dataset, message, collate=None, **options):
    active, recorder = asks_first(**options), Recorder(dataset)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, collate_fn=collate)
    with pytest.raises(MisconfigurationException, match=message):
        active.fit(quiet(tmp_path, active, recorder), model, loader)
    assert not recorder.fits, "nothing was trained"
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists(), "no label was spent"


class Tokens(Trains):
    """Its flattened embedding is as wide as the longest sentence of the batch."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 6), nn.Linear(6, CLASSES)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(dim=1))


def padded(items):
    tokens, labels = zip(*items, strict=True)
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor(labels)


def test_embeddings_of_other_widths_in_other_batches_are_found_before_a_label_is_spent(tmp_path):
    # Only the last sentences are longer: two points, or one batch, would not show it.
    items = [(torch.randint(1, 50, (4 if index < 40 else 7,)), index % CLASSES) for index in range(N)]
    refused(
        tmp_path,
        Tokens(),
        pool(items),
        r"embeddings of one batch have 24 columns and of another 42: .*layer=.*embedding=",
        padded,
        pool_batch_size=8,
        layer="embed",
    )


def test_a_model_that_fails_on_some_points_fails_before_a_label_is_spent(tmp_path):
    class Breaks(Small):
        def forward(self, x):
            if not self.trainer.training and (x == points()[-1]).all(dim=1).any():
                raise MisconfigurationException("the last point breaks it")
            return super().forward(x)

    refused(tmp_path, Breaks(), pool(), "the last point breaks it")


def test_the_dry_run_uses_batches_of_the_users_size(tmp_path):
    sizes, fitted = [], []

    class Notes(Small):
        def forward(self, x):
            (fitted if self.trainer.training else sizes).append(len(x))
            return super().forward(x)

        def on_train_start(self):
            fitted.append(list(sizes))

    active = asks_first(pool_batch_size=8)
    quiet(tmp_path, active, max_epochs=1).fit(Notes(), DataLoader(pool(), batch_size=8))
    before = fitted[0]
    assert len(before) >= 3, "several batches"
    assert set(before) == {8}
    assert sum(before) < N, "not the whole pool"


def test_the_dry_run_leaves_no_trace(tmp_path):
    selector = Snapshots("embeddings", "logits")
    states = []

    class Notes(Small):
        def on_train_start(self):
            states.append({name: value.clone() for name, value in self.state_dict().items()})

    torch.manual_seed(5)
    model = Notes()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    active = asks_first(selector=selector)
    quiet(tmp_path, active, max_epochs=1).fit(model, DataLoader(pool(), batch_size=8))
    assert all(torch.equal(states[0][name], value) for name, value in before.items())
    assert not any(child._forward_hooks for child in model.modules())
    assert len(selector.given) == 1, "the selector is asked in the rounds alone"


def test_a_changed_model_is_refused_with_the_layers_that_changed(tmp_path):
    active = asks_first()
    active.fit(quiet(tmp_path, active, max_epochs=1), Small(), DataLoader(pool(), batch_size=8))
    again = asks_first()
    with pytest.raises(
        MisconfigurationException,
        match=r"started with another model: head\.weight is \(5, 16\), where it was \(4, 16\).*folder=",
    ):
        again.fit(quiet(tmp_path, again, max_epochs=1), Small(classes=5), DataLoader(pool(), batch_size=8))


# One training batch with stand-in labels, before people are asked


class Teacher:
    """An oracle that counts what it is paid for."""

    def __init__(self):
        self.asked = []

    def __call__(self, indices):
        self.asked += indices
        return [index % CLASSES for index in indices]


class WrongLoss(Small):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) + self(batch[0]).view(3, 3).sum()


class WrongScheduler(Small):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 - step))
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class WrongBackward(Small):
    def on_before_optimizer_step(self, optimizer):
        raise RuntimeError("gradients of the backbone are missing")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (WrongLoss, r"failed: RuntimeError: shape '\[3, 3\]' is invalid"),
        (WrongScheduler, "failed: ZeroDivisionError"),
        (WrongBackward, "gradients of the backbone are missing"),
    ],
)
def test_a_training_batch_that_fails_costs_no_label(tmp_path, model, message):
    teacher = Teacher()
    refused(tmp_path, model(), pool(), message + r".*No label was asked for.*trial_batch=False", oracle=teacher)
    assert not teacher.asked


def test_without_the_trial_the_same_batch_fails_after_the_first_labels(tmp_path):
    teacher = Teacher()
    active = asks_first(oracle=teacher, trial_batch=False)
    with pytest.raises(RuntimeError, match="invalid for input"):
        active.fit(quiet(tmp_path, active), WrongLoss(), DataLoader(pool(), batch_size=8))
    assert teacher.asked


class DeviceHooks(L.LightningDataModule):
    """Batches become what the model trains on only on their way to the device."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def setup(self, stage):
        self.calls.append("setup")

    def train_dataloader(self):
        return DataLoader(pool([{"pixels": x, "label": index % CLASSES} for index, x in enumerate(points())]), 8)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch["pixels"], batch["label"]

    def teardown(self, stage):
        self.calls.append("teardown")

    def on_exception(self, exception):
        self.calls.append("exception")


class Prepared(Small):
    """Depends on its own hooks, on the DataModule and on a logger; keeps what it has seen of labels."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_start(self):
        self.scale = len(self.trainer.datamodule.train_dataloader())

    def training_step(self, batch, batch_idx):
        self.seen += batch[1].tolist()
        self.logger.experiment.log_metrics({"scale": self.scale}, self.global_step)
        self.log("train_loss", 0.0, on_epoch=True)
        return super().training_step(batch, batch_idx) / self.scale


def test_the_trial_runs_the_users_hooks_and_leaves_no_trace(tmp_path):
    def run(folder, **options):
        torch.manual_seed(0)
        model, data, teacher = Prepared(), DeviceHooks(), Teacher()
        active = asks_first(oracle=teacher, **options)
        trainer = quiet(folder, active, max_epochs=1, logger=CSVLogger(folder))
        active.fit(trainer, model, datamodule=data)
        return model, data, teacher.asked, data.trainer is trainer

    tried, plain = run(tmp_path / "tried"), run(tmp_path / "plain", trial_batch=False)
    assert tried[0].seen == plain[0].seen, "stand-in labels were seen by a copy alone"
    assert all(map(torch.equal, tried[0].state_dict().values(), plain[0].state_dict().values()))
    assert tried[1].calls == plain[1].calls
    assert tried[2:] == plain[2:]
