"""Fit, query, fit again."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from lightning_diffal.arguments import check_flag
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.distributed.rank_zero import connect, from_connected_rank_zero, from_rank_zero
from lightning_diffal.plugin.distributed.shared_folder import acquire
from lightning_diffal.plugin.distributed.strategies import check_one_trainer, check_rounds
from lightning_diffal.plugin.model.batches import overrides
from lightning_diffal.plugin.state import RunState
from lightning_diffal.plugin.training.checkpoint_files import DamagedCheckpointError
from lightning_diffal.plugin.training.checkpoints import RoundCheckpoints
from lightning_diffal.plugin.training.fresh_start import FreshStart
from lightning_diffal.plugin.training.seeding import seed_training
from lightning_diffal.plugin.waiting import HOW_TO_ANSWER, answers_awaited
from lightning_diffal.pool.folder.folder_lock import FolderLock
from lightning_diffal.pool.history import History
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.ledger_entries import merge_entries
from lightning_diffal.pool.record import Record

if TYPE_CHECKING:
    from lightning_diffal.plugin.callback import ActiveLearning


def fit_rounds(active: "ActiveLearning", trainer: Any, model: Any, data: dict[str, Any], wait: bool) -> History:
    """Rounds of `trainer.fit` until one of them is the last, or waits for people."""
    config = active.config
    check_flag("active.fit", "wait", wait)
    makes_trainers = callable(trainer) and not hasattr(trainer, "fit")
    ours = trainer() if makes_trainers else trainer
    check_trainer(active, ours)
    if not makes_trainers:
        check_one_trainer(ours.strategy)
    folder = active.last_folder = config.folder_for(ours)
    if folder is None:  # fast_dev_run: one short fit, nothing written
        ours.fit(model, **data)
        return History([])
    connect(ours)
    with owned_folder(active, ours, folder):
        return run_rounds(active, ours, trainer if makes_trainers else None, model, data, folder, wait)


def run_rounds(
    active: "ActiveLearning",
    trainer: Any,
    make_trainer: Callable[[], Any] | None,
    model: Any,
    data: dict[str, Any],
    folder: Path,
    wait: bool,
) -> History:
    config, checkpoints = active.config, RoundCheckpoints(folder, active.config.weights_only)
    records = from_connected_rank_zero(trainer, lambda: read_records(config, folder))
    if is_over(config, records):
        return finished_run(records, checkpoints, model)
    fresh_start = FreshStart(model, data["datamodule"])
    while True:
        waiting = from_connected_rank_zero(trainer, lambda: answers_awaited(config, folder, wait, rank_zero_info))
        if waiting is not None:
            rank_zero_info(f"Active learning: {waiting}. {HOW_TO_ANSWER.format(folder=folder)}")
            return History(records, waiting)
        number = len(records)
        checkpoints.start = from_connected_rank_zero(
            trainer,
            lambda: checkpoints.start_of(number, config.warm_start),  # noqa: B023, called at once
        )
        fresh_start.start_over(trainer)
        if checkpoints.start_path is not None and not overrides(model, "on_load_checkpoint"):
            # The fit does that, too, but some callbacks copy the weights before.
            checkpoints.load_weights(checkpoints.start_path, model)
        # Set-up that splits data at random splits it alike in every round.
        seed_training(config.seed)
        active.checkpoints, active.fresh_start, active.state = checkpoints, fresh_start, None
        try:
            fit_from(trainer, model, data, checkpoints.start_path, config.weights_only)
        finally:
            fresh_start.after_fit(trainer)
            active.checkpoints = active.fresh_start = None
        # Every rank has the rounds in memory; a process that only starts ranks reads what they left.
        records = active.state.ledger.records if active.state is not None else read_records(config, folder)
        answers_undone = active.state is not None and active.state.ledger.awaited is not None
        if len(records) <= number and not answers_undone:
            raise MisconfigurationException(f"A round ended without a line in {folder / 'rounds.jsonl'}.")
        if is_over(config, records):
            return History(records)
        if make_trainer is not None:
            trainer = make_trainer()
            check_trainer(active, trainer)


@contextmanager
def owned_folder(active: "ActiveLearning", trainer: Any, folder: Path) -> Iterator[None]:
    """Own the folder for all rounds: on rank 0, or in the process that starts the ranks."""
    active.lock = FolderLock(folder)
    try:
        acquire(trainer, active.lock)
        yield
    finally:
        active.lock.release()
        active.lock = None


def fit_from(trainer: Any, model: Any, data: dict[str, Any], checkpoint: Path | None, weights_only: bool) -> None:
    """One `trainer.fit`, from a checkpoint of ours or from the model as it is."""
    options: dict[str, Any] = {}
    if checkpoint is not None:
        options["ckpt_path"] = str(checkpoint)
        if "weights_only" in inspect.signature(trainer.fit).parameters:
            options["weights_only"] = weights_only
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


def read_records(config: RunConfig, folder: Path) -> list[Record]:
    """The rounds of this run on the disk, before there is a dataset to check them against."""
    return merge_entries(Ledger(folder).read(config.identity()))


class SkippedFit:
    """A `trainer.fit` on a run that is over: it trains nothing and ends as it should.

    `trainer.should_stop` ends a fit before its first batch, unless users want a minimum of epochs or steps.
    """

    def __init__(self, trainer: Any) -> None:
        loop = trainer.fit_loop
        self.min_epochs, self.min_steps = loop.min_epochs, loop.epoch_loop.min_steps
        loop.min_epochs, loop.epoch_loop.min_steps = None, None
        trainer.should_stop = True

    def restore(self, trainer: Any) -> None:
        trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = self.min_epochs, self.min_steps


def skip_if_over(trainer: Any, module: Any, config: RunConfig) -> SkippedFit | None:
    """Skip the fit that is about to start if the ledger says that the run is over."""
    folder = config.folder_for(trainer)
    if folder is None:
        return None
    records = from_rank_zero(trainer, lambda: read_records(config, folder))
    if not is_over(config, records):
        return None
    finished_run(records, RoundCheckpoints(folder, config.weights_only), module)
    return SkippedFit(trainer)


def reason_to_stop(trainer: Any, config: RunConfig, state: RunState, record: Record) -> str | None:
    """Why the round that was just fitted is the last: "budget", "pool" or "stop_when"; None if it is not."""
    if len(state.pool.labeled) >= config.budget:
        return "budget"
    if state.num_unlabeled == 0:
        return "pool"
    if config.stop_when is None:
        return None
    stop_when, history = config.stop_when, History([*state.ledger.records, record])
    # Metrics that were not synchronised differ between ranks, and a rank that stops alone would leave the others.
    return "stop_when" if from_rank_zero(trainer, lambda: bool(stop_when(history))) else None


def is_over(config: RunConfig, records: list[Record]) -> bool:
    """Whether the last round was the last one; not after a larger budget was given."""
    if not records or records[-1].last is None:
        return False
    return records[-1].last != "budget" or records[-1].labeled >= config.budget


def finished_run(records: list[Record], checkpoints: RoundCheckpoints, model: Any) -> History:
    """The history of a run that is over; its weights are loaded into the model."""
    try:
        checkpoints.load_weights(checkpoints.trained(records[-1].round), model)
    except DamagedCheckpointError as error:
        rank_zero_warn(f"{error} The labels are all there; the weights of the finished run are not loaded.")
    rank_zero_info(
        f"Active learning: the run in {checkpoints.folder} is over ({records[-1].last}): {len(records) - 1} rounds, "
        f"{records[-1].labeled} labels. Nothing is trained; another folder=... starts a new run."
    )
    return History(records)


def nothing_trained(trainer: Any, in_rounds: bool) -> str:
    limits = (
        f"This fit trained no step (epoch {trainer.current_epoch}, max_epochs={trainer.max_epochs}, "
        f"max_steps={trainer.max_steps}, limit_train_batches={trainer.limit_train_batches}): there is nothing new to "
        "query by. "
    )
    if in_rounds:
        return limits + (
            "If an earlier round trained, something outside the Trainer and its callbacks has kept its end: "
            "active.fit(make_trainer, ...), with a function that makes Trainers, helps."
        )
    return limits + (
        "A Trainer that has reached its end does nothing in a second trainer.fit: active.fit(...) starts it over for "
        "each round; by hand, make a new Trainer."
    )
