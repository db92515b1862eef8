"""Every callback of Lightning: round 2 on one Trainer equals the same fit on everything fresh."""

import gc
import inspect
import multiprocessing
import threading
from datetime import timedelta
from functools import partial

import lightning as L  # noqa: N812
import pytest
import torch
from lightning.pytorch import callbacks as of_lightning
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BaseFinetuning,
    BasePredictionWriter,
    BatchSizeFinder,
    DeviceStatsMonitor,
    EarlyStopping,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    LambdaCallback,
    LearningRateFinder,
    LearningRateMonitor,
    ModelCheckpoint,
    ModelPruning,
    ModelSummary,
    OnExceptionCheckpoint,
    RichModelSummary,
    RichProgressBar,
    SpikeDetection,
    StochasticWeightAveraging,
    ThroughputMonitor,
    Timer,
    TQDMProgressBar,
    WeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from torch.optim import SGD

from tests.plugin.fresh_fit import TracedNet, assert_same, both
from tests.plugin.toy_model import Data, learner, quiet


class Thaw(BaseFinetuning):
    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone, optimizer)


class StopSecond(L.Callback):
    """A callback of a user's own: counts in an attribute, in no state_dict, and stops by it."""

    def __init__(self):
        self.counts = {"epochs": 0}

    def on_train_epoch_end(self, trainer, pl_module):
        self.counts["epochs"] += 1
        trainer.should_stop = self.counts["epochs"] == 2


def head_only(module):
    return SGD(module.head.parameters(), 0.1)


def unfrozen(module):
    return SGD([p for p in module.parameters() if p.requires_grad], 0.1)


def logged(tmp_path):
    return {"logger": CSVLogger(tmp_path / "logs"), "log_every_n_steps": 1}


# For each callback: how it is made and, where the Trainer or model must be other than usual, how.
CALLBACKS = {
    BackboneFinetuning: {
        "make": lambda path: BackboneFinetuning(1, lambda_func=lambda epoch: 1.5, verbose=False),
        "configure": head_only,
    },
    BaseFinetuning: {"make": lambda path: Thaw(), "configure": unfrozen},
    BasePredictionWriter: {"make": lambda path: BasePredictionWriter("epoch")},
    BatchSizeFinder: {"make": lambda path: BatchSizeFinder(max_trials=1, init_val=4, steps_per_trial=1)},
    DeviceStatsMonitor: {"make": lambda path: DeviceStatsMonitor(cpu_stats=False), "options": logged},
    EarlyStopping: {"make": lambda path: EarlyStopping("val_acc", mode="max", patience=1), "epochs": 8},
    EMAWeightAveraging: {"make": lambda path: EMAWeightAveraging(decay=0.5)},
    GradientAccumulationScheduler: {"make": lambda path: GradientAccumulationScheduler({0: 2, 2: 4})},
    LambdaCallback: {"make": lambda path: LambdaCallback(on_train_start=lambda trainer, module: None)},
    LearningRateFinder: {"make": lambda path: LearningRateFinder(num_training_steps=4, early_stop_threshold=None)},
    LearningRateMonitor: {"make": lambda path: LearningRateMonitor("step"), "options": logged},
    ModelCheckpoint: {
        "make": lambda path: ModelCheckpoint(path / "saved", monitor="val_acc", mode="max"),
        "options": lambda path: {"enable_checkpointing": True},
    },
    ModelPruning: {"make": lambda path: ModelPruning("l1_unstructured", amount=0.3)},
    ModelSummary: {"make": lambda path: ModelSummary()},
    OnExceptionCheckpoint: {
        "make": lambda path: OnExceptionCheckpoint(path / "saved"),
        "options": lambda path: {"enable_checkpointing": True},
    },
    RichModelSummary: {"make": lambda path: RichModelSummary()},
    RichProgressBar: {"make": lambda path: RichProgressBar(), "options": lambda path: {"enable_progress_bar": True}},
    SpikeDetection: {"make": lambda path: SpikeDetection(warmup=100, exclude_batches_path=str(path / "skip.json"))},
    StochasticWeightAveraging: {"make": lambda path: StochasticWeightAveraging(0.2, swa_epoch_start=1), "epochs": 5},
    ThroughputMonitor: {
        "make": lambda path: ThroughputMonitor(lambda batch: len(batch[0]), window_size=2),
        "options": logged,
    },
    Timer: {"make": lambda path: Timer(timedelta(hours=1))},
    TQDMProgressBar: {"make": lambda path: TQDMProgressBar(), "options": lambda path: {"enable_progress_bar": True}},
    WeightAveraging: {"make": lambda path: WeightAveraging()},
}
WITHOUT_HOOKS = {L.Callback, of_lightning.Checkpoint, of_lightning.ProgressBar}
"""Bases that do nothing by themselves."""


def test_no_callback_of_lightning_is_left_out():
    kinds = {kind for _, kind in inspect.getmembers(of_lightning, inspect.isclass) if issubclass(kind, L.Callback)}
    assert kinds - WITHOUT_HOOKS == set(CALLBACKS)


class FindableNet(TracedNet):
    """As learning rate finders need it."""

    def __init__(self, configure=None):
        super().__init__(configure or (lambda module: SGD(module.parameters(), module.lr, momentum=0.9)), lr=0.1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", CALLBACKS, ids=lambda kind: kind.__name__)
def test_round_2_equals_a_fresh_trainer(tmp_path, kind):
    case = CALLBACKS[kind]
    make = case.get("options", lambda path: {})
    counts = iter(range(2))
    ours, expected = both(
        tmp_path,
        partial(FindableNet, case.get("configure")),
        lambda: [case["make"](tmp_path / f"files-{next(counts)}")],
        max_epochs=case.get("epochs", 3),
        **make(tmp_path),
    )
    assert_same(ours, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: StochasticWeightAveraging(0.2, swa_epoch_start=0.4, annealing_strategy="linear"),
        lambda: ModelPruning("random_unstructured", amount=0.3, use_lottery_ticket_hypothesis=False),
        lambda: EMAWeightAveraging(decay=0.5, update_starting_at_epoch=1),
        lambda: EarlyStopping("val_acc", mode="max", patience=1),
        lambda: GradientAccumulationScheduler({1: 3}),
    ],
    ids=["swa", "pruning", "ema", "stopping", "accumulation"],
)
def test_a_fit_that_ends_early_leaves_nothing_behind(tmp_path, make):
    # Stopped before its end, a callback has no chance to put back what it changed on the Trainer.
    assert_same(*both(tmp_path, make_callbacks=lambda: [make(), StopSecond()], max_epochs=6))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [EMAWeightAveraging, StochasticWeightAveraging, WeightAveraging])
def test_a_warm_start_begins_with_the_averaged_weights(tmp_path, kind):
    arguments = {StochasticWeightAveraging: {"swa_lrs": 0.2, "swa_epoch_start": 1}}.get(kind, {})
    active, model = learner(budget=25, warm_start=True), TracedNet()
    active.fit(quiet(tmp_path, active, kind(**arguments), max_epochs=3), model, datamodule=Data(batch_size=4))
    names = [name for name, _ in model.named_parameters()]
    for fit, start in zip(model.fits, model.diary[1:], strict=False):
        assert torch.equal(start["weights"], torch.cat([fit.weights[name].flatten() for name in names]))


@pytest.mark.filterwarnings("ignore")
def test_pruning_that_is_left_in_the_model_is_undone(tmp_path):
    def make():
        return [ModelPruning("l1_unstructured", amount=0.3, make_pruning_permanent=False)]

    assert_same(*both(tmp_path, make_callbacks=make))


# Modules of users' own


class Packed(TracedNet):
    """Saves its weights under other names."""

    def on_save_checkpoint(self, checkpoint):
        checkpoint["packed"] = {f"packed.{name}": value for name, value in checkpoint.pop("state_dict").items()}
        checkpoint["state_dict"] = {}

    def on_load_checkpoint(self, checkpoint):
        checkpoint["state_dict"] = {
            name.removeprefix("packed."): value for name, value in checkpoint.pop("packed").items()
        }


class MadeLate(TracedNet):
    """Makes a layer in `configure_model`."""

    def __init__(self):
        super().__init__()
        self.late = None

    def configure_model(self):
        if self.late is None:
            torch.manual_seed(1)
            self.late = torch.nn.Linear(2, 2)

    def forward(self, x):
        return super().forward(self.late(x))


class Lazy(TracedNet):
    """Learns the width of its input from the first batch, in `setup`."""

    def __init__(self):
        super().__init__()
        self.backbone[0] = torch.nn.LazyLinear(16)

    def setup(self, stage):
        torch.manual_seed(1)
        self.eval()(torch.ones(1, 2))
        self.train()


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("kind", [Packed, MadeLate, Lazy])
def test_round_2_equals_a_fresh_trainer_for_a_module_that(tmp_path, kind):
    ours, expected = both(tmp_path, kind)
    assert_same(ours, expected)


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("kind", [Packed, MadeLate, Lazy])
def test_a_run_continues_in_another_process_for_a_module_that(tmp_path, kind):
    for budget in (17, 25):
        active, model = learner(budget=budget), kind()
        history = active.fit(quiet(tmp_path, active), model, datamodule=Data(batch_size=4))
    assert history.labels == [9, 17, 17, 25]


# Callbacks of users' own


def test_what_a_callback_keeps_in_attributes_starts_over(tmp_path):
    ours, expected = both(tmp_path, make_callbacks=lambda: [StopSecond()], max_epochs=6)
    assert_same(ours, expected)
    assert ours.epochs == 2


def test_callbacks_of_the_module_start_over_too(tmp_path):
    class Own(TracedNet):
        def __init__(self):
            super().__init__()
            self.stopping = [StopSecond()]

        def configure_callbacks(self):
            return self.stopping

    ours, expected = both(tmp_path, Own, max_epochs=6)
    assert_same(ours, expected)
    assert ours.epochs == 2


def test_the_users_reference_to_a_callback_stays_good(tmp_path):
    best, count = ModelCheckpoint(tmp_path / "saved", monitor="val_acc", mode="max"), StopSecond()
    active = learner(budget=25)
    trainer = quiet(tmp_path, active, best, count, max_epochs=4, enable_checkpointing=True)
    active.fit(trainer, TracedNet(), datamodule=Data())
    assert trainer.checkpoint_callback is best
    saved = torch.load(best.best_model_path, weights_only=True)["callbacks"]
    assert len(saved[active.state_key]["records"]) == 3, "the best of round 3"
    assert count.counts == {"epochs": 2}, "of the last round"


class Collect(L.Callback):
    """Collects over all rounds, and says so."""

    reset_each_round = False

    def __init__(self):
        self.losses = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.losses.append(float(trainer.callback_metrics["loss"]))


def test_a_callback_may_ask_to_be_left_alone(tmp_path):
    active, collect = learner(), Collect()
    active.fit(quiet(tmp_path, active, collect, max_epochs=3), TracedNet(), datamodule=Data())
    assert len(collect.losses) == 4 * 3


class Locked(L.Callback):
    def __init__(self):
        self.lock, self.seen = threading.Lock(), 0

    def on_train_epoch_end(self, trainer, pl_module):
        with self.lock:
            self.seen += 1


def test_what_cannot_be_copied_stays_and_is_named_before_anything_is_trained(tmp_path):
    active, locked, model = learner(budget=17), Locked(), TracedNet()
    with pytest.warns(UserWarning, match=r"Locked.lock \(a lock\) .*cannot be copied.*function that makes Trainers"):
        active.fit(quiet(tmp_path, active, locked), model, datamodule=Data())
    assert locked.seen == 2, "of the last round"


class Reports(L.Callback):
    """Sends to a connection and writes to a file, neither of which may be closed by a copy of it."""

    def __init__(self, connection, file):
        self.send, self.files, self.fits = connection.send, {"log": file}, 0

    def on_train_start(self, trainer, pl_module):
        self.fits += 1
        self.send(self.fits)
        print(self.fits, file=self.files["log"])


def test_files_and_connections_of_a_callback_stay_open(tmp_path):
    here, there = multiprocessing.Pipe()
    with (tmp_path / "log").open("w") as file:
        active, reports = learner(), Reports(there, file)
        rounds = len(active.fit(quiet(tmp_path, active, reports), TracedNet(), datamodule=Data()))
        gc.collect()
        reports.send("still open")
        print("still open", file=file)
    assert [here.recv() for _ in range(rounds + 1)] == [1] * rounds + ["still open"]
    assert (tmp_path / "log").read_text().splitlines() == ["1"] * rounds + ["still open"]


def test_the_data_a_callback_holds_is_not_copied(tmp_path):
    class Holds(L.Callback):
        def __init__(self, data):
            self.data, self.loader = data, data.val_dataloader()

    data = Data()
    holds = Holds(data)
    loader, active = holds.loader, learner(budget=17)
    active.fit(quiet(tmp_path, active, holds), TracedNet(), datamodule=data)
    assert holds.data is data
    assert holds.loader is loader


def test_layers_frozen_on_the_way_are_thawed_again(tmp_path):
    class Freeze(L.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            pl_module.backbone.requires_grad_(trainer.current_epoch == 0)
            pl_module.backbone.train(trainer.current_epoch == 0)

    assert_same(*both(tmp_path, lambda: TracedNet(unfrozen), lambda: [Freeze()]))


def test_a_second_call_with_a_larger_budget_starts_over_too(tmp_path):
    active, model = learner(budget=17), TracedNet()
    trainer = quiet(tmp_path, active, StopSecond(), max_epochs=6)
    active.fit(trainer, model, datamodule=Data())
    more = learner(budget=25)
    trainer.callbacks[trainer.callbacks.index(active)] = more
    more.fit(trainer, model, datamodule=Data())
    assert {fit.epochs for fit in model.fits} == {2}


def test_what_is_set_between_two_calls_takes_effect(tmp_path):
    stopping = EarlyStopping("val_acc", mode="max", patience=1)
    active, model = learner(budget=17), TracedNet()
    trainer = quiet(tmp_path, active, stopping, max_epochs=5)
    active.fit(trainer, model, datamodule=Data())
    stopping.patience, trainer.fit_loop.max_epochs, trainer.accumulate_grad_batches = 100, 7, 2
    more = learner(budget=25)
    trainer.callbacks[trainer.callbacks.index(active)] = more
    more.fit(trainer, model, datamodule=Data(batch_size=4))
    assert [fit.epochs for fit in model.fits[2:]] == [7, 7]
    assert [fit.steps for fit in model.fits[2:]] == [14, 21]


# Time


def test_each_round_has_the_time_of_max_time(tmp_path):
    class Slow(TracedNet):
        def training_step(self, batch, batch_idx):
            threading.Event().wait(0.05)
            return super().training_step(batch, batch_idx)

    active, model = learner(budget=25), Slow()
    trainer = quiet(tmp_path, active, max_epochs=1000, max_time=timedelta(seconds=0.6))
    assert active.fit(trainer, model, datamodule=Data()).labels == [9, 17, 25]
    assert all(fit.steps > 0 for fit in model.fits)
