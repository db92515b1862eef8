"""The callback: one on a Trainer, and every fit ends with a question."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import lightning.pytorch
import pytorch_lightning
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, Dataset

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.plugin.batches import Forward
from lightning_diffal.plugin.checkpoints import Checkpoints
from lightning_diffal.plugin.config import Plan
from lightning_diffal.plugin.loaders import check_batch_norm, check_training_loaders, mapped
from lightning_diffal.plugin.logging import tell
from lightning_diffal.plugin.query import Questioner
from lightning_diffal.plugin.rounds import fit_rounds
from lightning_diffal.plugin.seeding import seed_training
from lightning_diffal.plugin.shared_folder import check_shared
from lightning_diffal.plugin.source import TrainingSource
from lightning_diffal.plugin.state import Run
from lightning_diffal.plugin.strategies import check_forward
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass, check_initial
from lightning_diffal.selectors.base import as_selector

FOLDER: Final = "active_learning"


class ActiveLearning(lightning.pytorch.Callback, pytorch_lightning.Callback):  # type: ignore[misc]
    """Spend a budget of labels where they teach most: each fit trains on what is labeled, and then asks for more.

    `active.fit(trainer, model, datamodule=data)` runs rounds until the budget is spent; `trainer.fit` by hand does one.
    It is a callback of both namespaces, `lightning` and `pytorch_lightning`.

    Args:
        query_size: Labels asked after each fit.
        budget: Labels in total, the first ones included.
        selector: Who chooses: one of this library, or a function `(snapshot, size) -> indices`.
        initial: The first labels: how many (drawn by seed; by default `query_size`), `PerClass(n)` of each class in
            simulation, or indices of the dataset. 0 starts with a query of the model as it comes.
        layer: Name of the submodule whose output is the embedding, as "backbone.fc2". By default the input of the
            classifier, which is the last Linear that runs.
        forward: `(module, batch) -> anything`, run instead of `predict_step` or `forward`.
        pool: The training points once more, in the same order and without training augmentation: a Dataset or a
            DataLoader. A DataModule may offer `pool_dataloader()` instead. Its labels are not read.
        pool_batch_size: Points in a batch of the embedding pass. By default as many as in training.
        oracle: `(indices) -> labels`, asked once for each query; one with an attribute `immediate = True` is asked
            after each mini-batch. By default a simulation: the dataset's own labels are revealed.
        num_classes: By default the width of the classifier.
        stop_when: `(history) -> bool`, asked after each fit.
        warm_start: Keep the weights from round to round. By default each round starts from the untrained model.
        folder: Where `rounds.jsonl`, the memory of the run, is kept. By default `active_learning` under the Trainer's
            `default_root_dir`. A run that was killed goes on when it is started again with the same folder.
        seed: Of the first labels, the choices and, in `active.fit`, each round's training.
    """

    @skip_type_check
    def __init__(
        self,
        query_size: int,
        budget: int,
        *,
        selector: Callable[..., Any],  # wide, since jsonargparse takes a narrow return type for the class to make
        initial: int | PerClass | list[int] | None = None,
        layer: str | None = None,
        forward: Forward | None = None,
        pool: Dataset[Any] | DataLoader[Any] | None = None,
        pool_batch_size: int | None = None,
        oracle: Callable[..., Any] | None = None,
        num_classes: int | None = None,
        stop_when: Callable[[History], bool] | None = None,
        warm_start: bool = False,
        folder: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_count(name, "query_size", query_size)
        check_count(name, "budget", budget)
        for argument, count in {"pool_batch_size": pool_batch_size, "num_classes": num_classes}.items():
            if count is not None:
                check_count(name, argument, count)
        for argument, function in {"forward": forward, "oracle": oracle, "stop_when": stop_when}.items():
            if function is not None and not callable(function):
                raise ValueError(f"{name}({argument}={function!r}): a function is needed.")
        if not callable(selector):
            raise ValueError(f"{name}(selector={selector!r}): a selector or a function (snapshot, size) is needed.")
        if layer is not None and not isinstance(layer, str):
            raise ValueError(f"{name}(layer={layer!r}): the dotted name of a submodule is needed, or None.")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise ValueError(f"{name}(seed={seed!r}): a whole number in [0, 2**32) is needed.")
        self.warm_start, self.folder = warm_start, Path(folder) if folder is not None else None
        self.plan = Plan(
            query_size=query_size,
            budget=budget,
            initial=check_initial(name, query_size if initial is None else initial, budget),
            oracle=oracle,
            stop_when=stop_when,
            seed=seed,
            questioner=Questioner(
                selector=as_selector(selector),
                layer=layer,
                forward=forward,
                pool=pool,
                pool_batch_size=pool_batch_size,
                num_classes=num_classes,
                seed=seed,
            ),
        )
        self.run: Run | None = None
        self.checkpoints: Checkpoints | None = None
        """Where rounds start from, while `fit` runs them."""
        self.source: TrainingSource | None = None
        self.remembered: list[dict[str, Any]] = []
        self.batches, self.started, self.rehearsed = 0, 0.0, False

    # Rounds

    def fit(
        self,
        trainer: Any,
        model: Any,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Any = None,
    ) -> History:
        """Fit, query, fit again, until the budget is spent, the pool is empty or `stop_when` says so.

        Takes the arguments of `trainer.fit`. Each round starts over on the same Trainer: weights (unless `warm_start`),
        epoch, step, optimizers, schedulers and the memory of callbacks. `trainer` may be a function that makes a new
        Trainer for each round, with this callback among its callbacks, as strategies that fit only once need it.
        """
        return fit_rounds(self, trainer, model, train_dataloaders, val_dataloaders, datamodule)

    @property
    def history(self) -> History:
        """What the run has come to so far."""
        return History(self.run.ledger.records if self.run is not None else [])

    def folder_for(self, trainer: Any) -> Path | None:
        """Where the run is remembered; nowhere in a `fast_dev_run`."""
        if trainer.fast_dev_run:
            return None
        return self.folder if self.folder is not None else Path(trainer.default_root_dir) / FOLDER

    # The hooks, in the order Lightning calls them

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self.run, self.remembered, self.batches, self.started = None, [], 0, time.perf_counter()
            check_forward(trainer.strategy, self.plan.questioner.selector.needs)
            check_shared(trainer, self.folder_for(trainer))
            self.source = TrainingSource(trainer)
            self.source.replace(lambda: self.training_loaders(trainer, pl_module))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Believed only when the run is opened, and only where it knows more than the ledger.
        self.remembered = state_dict["records"]

    def training_loaders(self, trainer: Any, module: Any) -> Any:
        """The user's training loaders over the labeled points alone."""
        assert self.source is not None
        loaders = self.source.loaders()
        if self.run is None:
            folder, first = self.folder_for(trainer), not self.rehearsed
            self.run = self.plan.open_run(trainer, module, loaders, folder, self.remembered, rehearse=first)
            self.rehearsed = True
        return mapped(loaders, self.run.narrowed)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self.checkpoints is not None and self.run is not None:
            self.checkpoints.start(trainer, self.warm_start)
            # From here on a round depends on nothing but its number, so that a run can be resumed at any of them.
            seed_training(self.plan.seed_of_next(self.run))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self.run is not None:
            labeled = self.run.pool.labeled.tolist()
            check_training_loaders(trainer.train_dataloader, labeled, self.run.others)
            check_batch_norm(pl_module, len(labeled))

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.batches += 1

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.fast_dev_run:
            return
        if self.run is None or self.batches == 0:
            raise MisconfigurationException(nothing_trained(trainer, self.checkpoints is not None))
        fitted = self.plan.fitted(trainer, self.run, self.batches, time.perf_counter() - self.started)
        over = self.plan.reason_to_stop(self.run, fitted)
        record = replace(fitted, last=over) if over else self.plan.asked(trainer, pl_module, self.run, fitted)
        if self.checkpoints is not None and (over or self.warm_start):
            self.checkpoints.keep_trained(trainer, pl_module, record.round)
        tell(trainer, self.run.commit(record), self.run)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self.source is not None:
            self.source.restore()
            self.source = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        return {"records": [asdict(record) for record in self.run.ledger.records] if self.run is not None else []}

    @cached_property  # Lightning asks for it at every hook of every batch
    def state_key(self) -> str:
        return self._generate_state_key(**self.plan.identity())

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self.checkpoints is not None:
            self.checkpoints.on_save(checkpoint)


def nothing_trained(trainer: Any, in_rounds: bool) -> str:
    limits = (
        f"This fit trained no step (epoch {trainer.current_epoch}, max_epochs={trainer.max_epochs}, "
        f"max_steps={trainer.max_steps}, limit_train_batches={trainer.limit_train_batches}): there is nothing new to "
        "ask by. "
    )
    if in_rounds:
        return limits + (
            "If an earlier round trained, a callback has brought its end back, as LearningRateFinder and "
            "BatchSizeFinder do: active.fit(make_trainer, ...), with a function that makes Trainers, helps."
        )
    return limits + (
        "A Trainer that has reached its end does nothing in a second trainer.fit: active.fit(...) starts it over for "
        "each round; by hand, make a new Trainer."
    )
