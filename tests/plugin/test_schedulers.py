"""Each round has optimizers and schedulers as `configure_optimizers` makes them for the labels of that round."""

import inspect

import lightning as L  # noqa: N812
import pytest
import torch
from torch.optim import SGD, Adam, lr_scheduler

from tests.plugin.fresh_fit import TracedNet, assert_same, both
from tests.plugin.toy_model import Data, learner, quiet


def step_sized(make):
    """A scheduler stepped after every batch, told how many there will be."""

    def configure(module):
        optimizer = SGD(module.parameters(), 0.1, momentum=0.9)
        total = int(module.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": make(optimizer, total), "interval": "step"}]

    return configure


def plateau(module):
    optimizer = SGD(module.parameters(), 0.1, momentum=0.9)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_acc"}}


SCHEDULERS = {
    "ChainedScheduler": step_sized(
        lambda o, n: lr_scheduler.ChainedScheduler(
            [lr_scheduler.LinearLR(o, total_iters=n // 2), lr_scheduler.ExponentialLR(o, 0.95)]
        )
    ),
    "ConstantLR": step_sized(lambda o, n: lr_scheduler.ConstantLR(o, total_iters=n // 2)),
    "CosineAnnealingLR": step_sized(lr_scheduler.CosineAnnealingLR),
    "CosineAnnealingWarmRestarts": step_sized(lambda o, n: lr_scheduler.CosineAnnealingWarmRestarts(o, n // 3)),
    "CyclicLR": step_sized(lambda o, n: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=n // 2)),
    "ExponentialLR": step_sized(lambda o, n: lr_scheduler.ExponentialLR(o, 0.01 ** (1 / n))),
    "LambdaLR": step_sized(lambda o, n: lr_scheduler.LambdaLR(o, lambda step: 1 - step / n)),
    "LinearLR": step_sized(lambda o, n: lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=n)),
    "MultiplicativeLR": step_sized(lambda o, n: lr_scheduler.MultiplicativeLR(o, lambda step: 1 - 1 / n)),
    "MultiStepLR": step_sized(lambda o, n: lr_scheduler.MultiStepLR(o, [n // 3, 2 * n // 3])),
    "OneCycleLR": step_sized(lambda o, n: lr_scheduler.OneCycleLR(o, 0.2, total_steps=n)),
    "PolynomialLR": step_sized(lambda o, n: lr_scheduler.PolynomialLR(o, n, power=2)),
    "ReduceLROnPlateau": plateau,
    "SequentialLR": step_sized(
        lambda o, n: lr_scheduler.SequentialLR(
            o,
            [lr_scheduler.LinearLR(o, total_iters=n // 4), lr_scheduler.CosineAnnealingLR(o, n - n // 4)],
            milestones=[n // 4],
        )
    ),
    "StepLR": step_sized(lambda o, n: lr_scheduler.StepLR(o, n // 2)),
}


def of_torch():
    """The schedulers torch has, by introspection."""
    kinds = {kind for _, kind in inspect.getmembers(lr_scheduler, inspect.isclass)}
    return {
        kind.__name__
        for kind in kinds
        if issubclass(kind, lr_scheduler.LRScheduler) and not kind.__name__.startswith("_")
    } - {"LRScheduler"}


def test_no_scheduler_of_torch_is_left_out():
    assert of_torch() == set(SCHEDULERS)


@pytest.mark.filterwarnings("ignore")  # what torch says of its own schedulers' order and epoch argument
@pytest.mark.parametrize("name", SCHEDULERS)
def test_round_2_runs_the_rates_of_a_fresh_trainer(tmp_path, name):
    ours, expected = both(tmp_path, lambda: TracedNet(SCHEDULERS[name]))
    assert_same(ours, expected)
    assert len({rate for rates in ours.rates for rate in rates}) > 1, "the rate moves"


def cosine_of_batches(module):
    optimizer = SGD(module.parameters(), 0.1)
    batches = len(module.trainer.datamodule.train_dataloader()) * module.trainer.max_epochs
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, batches)
    return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


@pytest.mark.filterwarnings("ignore")
def test_a_schedule_over_the_batches_of_the_users_own_loader_ends_with_the_last_step(tmp_path):
    ours, expected = both(tmp_path, lambda: TracedNet(cosine_of_batches))
    assert_same(ours, expected)
    assert ours.rates[-1][0] == pytest.approx(0, abs=1e-9)
    assert min(rates[0] for rates in ours.rates[:-1]) > 1e-4, "and not before"


def epoch_wise(module):
    optimizer = Adam(module.parameters(), 0.01)
    return [optimizer], [lr_scheduler.StepLR(optimizer, 1, 0.5)]


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 7, "max_epochs": -1},
        {"max_steps": 100},
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 0.1},
        {"precision": "bf16-mixed"},
        {"num_sanity_val_steps": 2},
        {"val_check_interval": 2},
        {"check_val_every_n_epoch": 2},
        {"reload_dataloaders_every_n_epochs": 1},
        {"max_time": {"hours": 1}},
        {"min_epochs": 2},
    ],
    ids=str,
)
def test_round_2_equals_a_fresh_trainer_under_any_option(tmp_path, options):
    assert_same(*both(tmp_path, lambda: TracedNet(epoch_wise), **options))


class ManualNet(TracedNet):
    """Two optimizers, two schedulers, stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer, scheduler in zip(self.optimizers(), self.lr_schedulers(), strict=True):
            optimizer.step()
            scheduler.step()

    def configure_optimizers(self):
        total = int(self.trainer.estimated_stepping_batches)
        optimizers = [Adam(self.backbone.parameters(), 0.01), SGD(self.head.parameters(), 0.1, momentum=0.9)]
        return optimizers, [lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=total) for optimizer in optimizers]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step")
def test_round_2_equals_a_fresh_trainer_with_manual_optimization_of_two_optimizers(tmp_path):
    assert_same(*both(tmp_path, ManualNet))


class KeptNet(TracedNet):
    """Returns the very same optimizer and scheduler each time, as LightningCLI's `--optimizer` does."""

    def __init__(self):
        super().__init__()
        self.kept = Adam(self.parameters(), 0.05)
        self.schedule = lr_scheduler.StepLR(self.kept, 1, 0.5)

    def configure_optimizers(self):
        return [self.kept], [self.schedule]


def test_an_optimizer_that_is_made_once_starts_over_too(tmp_path):
    ours, expected = both(tmp_path, KeptNet)
    assert_same(ours, expected)
    assert ours.rates[0] == [0.05]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("made", ["one Trainer", "a function"])
def test_a_learning_rate_edited_between_two_starts_takes_effect(tmp_path, warm, made):
    for rate, budget in ((0.1, 17), (0.3, 25)):
        active = learner(budget=budget, warm_start=warm)
        model = TracedNet(lambda module, rate=rate: SGD(module.parameters(), rate))
        trainer = quiet(tmp_path, active) if made == "one Trainer" else lambda active=active: quiet(tmp_path, active)
        active.fit(trainer, model, datamodule=Data())
        assert {rates[0] for fit in model.fits for rates in fit.rates} == {rate}


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step")
@pytest.mark.parametrize("warm", [False, True])
def test_schedules_grow_with_the_labels_under_a_function_that_makes_trainers(tmp_path, warm):
    active, model = learner(warm_start=warm), TracedNet(SCHEDULERS["OneCycleLR"])
    active.fit(lambda: quiet(tmp_path, active, max_epochs=3), model, datamodule=Data(batch_size=4))
    assert [fit.steps for fit in model.fits] == [6, 12, 18, 24]
    for fit in model.fits:
        rates = [rates[0] for rates in fit.rates]
        assert rates.index(max(rates)) < len(rates) / 2
        assert rates.index(min(rates)) >= len(rates) - 2, "OneCycleLR is lowest at the end"


class ScaledPrecision(L.pytorch.plugins.MixedPrecision):
    """Half precision with a loss scaler, which on a CPU Lightning would leave out."""

    def __init__(self):
        super().__init__("bf16-mixed", "cpu")
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)


def test_the_loss_scale_starts_over(tmp_path):
    scales = []

    class Look(L.Callback):
        def on_train_batch_start(self, trainer, *_):
            scales.append(trainer.precision_plugin.scaler.get_scale())

    active = learner(budget=17)
    trainer = quiet(tmp_path, active, Look(), plugins=[ScaledPrecision()], max_epochs=3)
    active.fit(trainer, TracedNet(), datamodule=Data(batch_size=4))
    first, second = scales[:6], scales[6:]
    assert first[0] == second[0] == 64.0
    assert max(first) > 64.0, "it grows"
