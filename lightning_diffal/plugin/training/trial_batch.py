"""One training batch on a copy of the model, with stand-in labels, before anyone is asked for the first label.

Shapes, losses, optimizers and schedulers that do not fit fail here and not after labels were paid for. A Trainer of its
own runs the batch, so that the hooks of the module come in their order; the user's Trainer, callbacks and loggers see
nothing of it.
"""

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import lightning.pytorch
import pytorch_lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities import rank_zero_info

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.distributed.strategies import is_a
from lightning_diffal.plugin.state import RunState, labeled_loaders
from lightning_diffal.plugin.training.fresh_start import handles_in
from lightning_diffal.pool.initial import draw_initial
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.randomness import temporary_seed

# What the trial takes over from the user's Trainer.
SETTINGS = (
    "accumulate_grad_batches",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "log_every_n_steps",
    "max_epochs",
    "max_steps",
    "precision",
)


def try_training_batch(trainer: Any, module: Any, config: RunConfig, first_fit: RunState, loaders: Any) -> None:
    """Train a copy of the model on one batch.

    Left out under several processes, where a Trainer of one process would tell every module that its rank is 0, and
    where the model cannot be copied or there is no memory for a second one.

    Args:
        first_fit: As `with_stand_ins` makes it.
        loaders: The user's.
    """
    if trainer.world_size > 1 or not is_a(trainer.strategy, "SingleDeviceStrategy"):
        return
    with temporary_seed(config.seed), silence():
        try:
            model = copy_of(trainer, module, first_fit)
        except Exception as error:  # each type says in its own way that it cannot be copied
            rank_zero_info(f"No training batch is tried before the first labels: the model cannot be copied ({error}).")
            return
        try:
            train_one_batch(trainer, model, labeled_loaders(config, first_fit, loaders))
        except torch.OutOfMemoryError:
            return
        except Exception as error:
            raise MisconfigurationException(
                f"One training batch was tried with stand-in labels, and failed: {type(error).__name__}: {error} "
                "No label was asked for. If it would work in a fit (in the trial there are no other callbacks and no "
                f"loggers), {config.callback}(trial_batch=False) leaves the trial out."
            ) from error


def with_stand_ins(config: RunConfig, state: RunState, num_classes: int | None) -> RunState:
    """The state of the first fit as it will be, but for the labels, which are 0, 1, ..., c - 1, 0, ...

    Args:
        num_classes: c, the outputs of the classifier. Two if it is unknown or has a single output.
    """
    initial = config.initial if config.initial != 0 else config.query_size
    indices = draw_initial(initial, state.candidates, state.oracle, config.seed)
    pool = LabelPool(len(state.pool))
    pool.reveal(indices, [row % max(num_classes or 2, 2) for row in range(len(indices))])
    return replace(state, pool=pool)


class BatchTrainedError(Exception):
    """Ends the trial."""


class EndAfterBatch(lightning.pytorch.Callback, pytorch_lightning.Callback):  # type: ignore[misc]
    """Shows the trial the user's DataModule, and ends it once the first batch is trained."""

    def __init__(self, datamodule: Any) -> None:
        super().__init__()
        self.datamodule = datamodule

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # After Lightning's own call of its `setup`, which has been called for the fit already.
        trainer.datamodule = trainer._data_connector._datahook_selector.datamodule = self.datamodule

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        raise BatchTrainedError

    def on_exception(self, trainer: Any, *_: Any) -> None:
        trainer.datamodule = None  # whose own `on_exception` comes next


def train_one_batch(trainer: Any, model: Any, loaders: Any) -> None:
    """Fit a model with a Trainer like the user's, on the same device, until the end of the first batch."""
    make_trainer: Any = next(cls for cls in type(trainer).__mro__ if cls.__name__ == "Trainer")
    device, datamodule = trainer.strategy.root_device, trainer.datamodule
    with tempfile.TemporaryDirectory() as folder:
        trial = make_trainer(
            accelerator="gpu" if device.type == "cuda" else device.type,
            devices=1 if device.index is None else [device.index],
            limit_val_batches=0,
            logger=[DummyLogger() for _ in trainer.loggers] or False,
            default_root_dir=folder,
            callbacks=[EndAfterBatch(datamodule)],
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            **{name: getattr(trainer, name) for name in SETTINGS},
        )
        with suppress(BatchTrainedError):
            trial.fit(model, loaders)


def copy_of(trainer: Any, module: Any, state: RunState) -> Any:
    """A copy of the model that shares data, files and connections with it."""
    shared = [trainer, trainer.datamodule, *trainer.loggers, *trainer.callbacks, state.loader, *state.other_datasets]
    shared += [view.dataset for view in state.views]
    memo = {id(part): part for part in shared if part is not None}
    memo |= {id(handle): handle for handle in handles_in(vars(module), set(memo))}
    return copy.deepcopy(module, memo)


@contextmanager
def silence() -> Iterator[None]:
    """Nothing of what a Trainer says at its start."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
