"""Fit, query, fit again."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_info

from lightning_diffal.plugin.checkpoints import Checkpoints
from lightning_diffal.plugin.seeding import seed_training
from lightning_diffal.plugin.strategies import check_one_trainer, check_rounds
from lightning_diffal.pool.history import History
from lightning_diffal.pool.ledger import Ledger, Record

if TYPE_CHECKING:
    from lightning_diffal.plugin.callback import ActiveLearning


def fit_rounds(
    active: "ActiveLearning", trainer: Any, model: Any, train_dataloaders: Any, val_dataloaders: Any, datamodule: Any
) -> History:
    """Rounds of `trainer.fit` until one of them is the last."""
    data = {"train_dataloaders": train_dataloaders, "val_dataloaders": val_dataloaders, "datamodule": datamodule}
    makes_trainers = callable(trainer) and not hasattr(trainer, "fit")
    ours = trainer() if makes_trainers else trainer
    check_trainer(active, ours)
    if not makes_trainers:
        check_one_trainer(ours.strategy)
    folder = active.folder_for(ours)
    if folder is None:  # fast_dev_run: one quick look, nothing written
        ours.fit(model, **data)
        return History([])
    records, checkpoints = remembered(active, folder), Checkpoints(folder)
    if is_over(active, records):
        return finished(records, checkpoints, model)
    accumulate = ours.accumulate_grad_batches
    while True:
        ours.accumulate_grad_batches = accumulate  # GradientAccumulationScheduler leaves its last value there
        # Set-up that splits data at random splits it alike in every round.
        seed_training(active.plan.seed)
        active.checkpoints = checkpoints
        try:
            fit_from(ours, model, data, checkpoints.start_of(len(records), active.warm_start))
        finally:
            active.checkpoints = None
        before, records = len(records), remembered(active, folder)
        if len(records) <= before:
            raise MisconfigurationException(f"A round ended without a line in {folder / 'rounds.jsonl'}.")
        if is_over(active, records):
            return History(records)
        if makes_trainers:
            ours = trainer()
            check_trainer(active, ours)


def fit_from(trainer: Any, model: Any, data: dict[str, Any], checkpoint: Path | None) -> None:
    """One `trainer.fit`, from a checkpoint of ours or from the model as it is."""
    options: dict[str, Any] = {}
    if checkpoint is not None:
        options["ckpt_path"] = str(checkpoint)
        if "weights_only" in inspect.signature(trainer.fit).parameters:
            options["weights_only"] = False  # our own file, and users' hyperparameters may be of any type
    trainer.fit(model, **data, **options)


def check_trainer(active: "ActiveLearning", trainer: Any) -> None:
    if not hasattr(trainer, "fit") or not hasattr(trainer, "callbacks"):
        raise MisconfigurationException(
            f"active.fit(trainer={trainer!r}): a Trainer is needed, or a function that makes one."
        )
    if active not in trainer.callbacks:
        raise MisconfigurationException(
            f"active.fit(trainer=...): this {type(active).__name__} is not among the Trainer's callbacks. "
            "Trainer(callbacks=[active]) adds it."
        )
    check_rounds(trainer.strategy)


def remembered(active: "ActiveLearning", folder: Path) -> list[Record]:
    """What the ledger holds of this run, before there is a dataset to check it against."""
    ledger = Ledger(folder)
    ledger.open(None, **active.plan.identity())
    return ledger.records


def is_over(active: "ActiveLearning", records: list[Record]) -> bool:
    """Whether there is nothing left to do; a larger budget than before is."""
    if not records or records[-1].last is None:
        return False
    return records[-1].last != "budget" or records[-1].labeled >= active.plan.budget


def finished(records: list[Record], checkpoints: Checkpoints, model: Any) -> History:
    """The history of a run that is over, and its weights in the model."""
    weights = checkpoints.trained(records[-1].round)
    if weights.exists():
        getattr(model, "_orig_mod", model).load_state_dict(
            torch.load(weights, map_location="cpu", weights_only=False)["state_dict"]
        )
    rank_zero_info(
        f"Active learning: the run in {checkpoints.folder} is over ({records[-1].last}): {len(records) - 1} rounds, "
        f"{records[-1].labeled} labels. Nothing is trained; another folder=... starts a new run."
    )
    return History(records)
