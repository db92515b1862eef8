"""The callback: trains on labeled points only, and ends every fit with a query."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning.pytorch
import pytorch_lightning
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.diffusion.learn_from_graph import LearnFromGraph, as_settings
from lightning_diffal.labeling.question import Outcome, Question
from lightning_diffal.plugin.answers import answer_question
from lightning_diffal.plugin.audit import audit
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.draw_candidates import draw_candidates
from lightning_diffal.plugin.data.guard import check_batch_norm, check_training_loaders
from lightning_diffal.plugin.data.training_source import TrainingSource
from lightning_diffal.plugin.diffused_labels import (
    FeatureGraph,
    PoolLabels,
    check_last_labels,
    predict_labels,
)
from lightning_diffal.plugin.distributed.arrival import wait_for_all_ranks
from lightning_diffal.plugin.distributed.rank_agreement import check_same_start
from lightning_diffal.plugin.distributed.shared_folder import acquire, check_shared_folder
from lightning_diffal.plugin.distributed.strategies import check_forward
from lightning_diffal.plugin.features.choice import with_best_features
from lightning_diffal.plugin.features.encode import check_layer
from lightning_diffal.plugin.features.source import FeatureArgument
from lightning_diffal.plugin.known_pool import embedded_pool, read_known_pool, training_dataset
from lightning_diffal.plugin.logging import continue_logged_steps, log_round
from lightning_diffal.plugin.model.batches import Forward
from lightning_diffal.plugin.model.layer_cache import LayerCache
from lightning_diffal.plugin.open_run import open_run
from lightning_diffal.plugin.progress_bars import stage_timer_for
from lightning_diffal.plugin.query import choose_points, embed_pool, layer_cache_for, predicted_classes
from lightning_diffal.plugin.questions import write_question
from lightning_diffal.plugin.records import new_record, with_fit, with_query
from lightning_diffal.plugin.rounds import SkippedFit, fit_rounds, nothing_trained, reason_to_stop, skip_if_over
from lightning_diffal.plugin.state import RunState, commit, labeled_loaders
from lightning_diffal.plugin.training.checkpoints import RoundCheckpoints
from lightning_diffal.plugin.training.fresh_start import FreshStart
from lightning_diffal.plugin.training.model_checkpoints import move_earlier_checkpoints
from lightning_diffal.plugin.training.seeding import seed_training
from lightning_diffal.pool.dataset.items import LabelArgument
from lightning_diffal.pool.folder.folder_lock import FolderLock
from lightning_diffal.pool.folder.repair import user_name
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass
from lightning_diffal.pool.ledger_entries import without_corrections
from lightning_diffal.pool.randomness import seed_of
from lightning_diffal.pool.record import Record
from lightning_diffal.selectors.base import as_selector


class ActiveLearning(lightning.pytorch.Callback, pytorch_lightning.Callback):  # type: ignore[misc]
    """Spend a budget of labels where they help most: each fit trains on the labeled points, then a query asks for more.

    `active.fit(trainer, model, datamodule=data)` runs rounds until the budget is spent; `trainer.fit` by hand does one.
    It is a callback of both namespaces, `lightning` and `pytorch_lightning`.

    Args:
        query_size: Labels asked after each fit.
        budget: Labels in total, the first ones included.
        selector: Chooses the points: one of this library, or a function `(snapshot, size) -> indices`.
        initial: The first labels: how many (drawn by seed; by default `query_size`), `PerClass(n)` of each class in
            simulation, or indices of the dataset. 0 starts with a query of the model as it comes.
        layer: Name of the submodule whose output is the embedding, as "backbone.fc2". By default the input of the
            classifier, which is the layer that computed the logits that the model returns.
        forward: `(module, batch) -> anything`, run instead of `predict_step` or `forward`.
        embedding: `(module, batch) -> (points, d)`, where no layer gives the embedding.
        logits: `(module, batch) -> (points, classes)`, where the model does not return the logits.
        label: Where an item has its label: a key, a position, an attribute, or a pair of functions (get, set), of
            which `get(item)` gives the label and `set(item, label)` the item with another. By default by its format.
        classes: Names of the classes in order, where labels are strings.
        unlabeled: Name (of a dictionary) or position (of a list) of a training loader that is left whole, with its
            inputs and without its labels, which are -1: for semi-supervised learning.
        pool: The training points once more, in the same order and without training augmentation: a Dataset or a
            DataLoader. A DataModule may offer `pool_dataloader()` instead. Its labels are not read.
        pool_batch_size: Points in a batch of the embedding pass. By default as many as in training; where that is less
            than 64, up to 8 times as many, since no gradients are kept.
        oracle: `(indices) -> labels`, asked once for each query; one with an attribute `immediate = True` is asked
            after each mini-batch. By default a simulation: the dataset's own labels are revealed.
        num_classes: By default the width of the classifier.
        stop_when: `(history) -> bool`, asked after each fit.
        warm_start: Keep the weights from round to round. By default each round starts from the untrained model.
        other_data: Further training loaders, by name (the key of a dictionary of loaders), position or dataset, whose
            items are not points of the pool. They are trained on as they are.
        same_data: Further training loaders that show the points of the pool in the same order, as with another
            augmentation. Those that draw from the very dataset of the first loader need not be named.
        folder: Where `rounds.jsonl`, the ledger of the run, is kept. By default `active_learning` under the Trainer's
            `default_root_dir`. A run that was killed continues when it is started again with the same folder.
        trial_batch: Before an oracle is asked for the first labels, train a copy of the model on one batch with
            stand-in labels, so that what cannot be trained costs no label. In one process, and not in a simulation.
        weights_only: Load the checkpoints in `folder` as tensors and plain values only. False allows models and
            callbacks that save other types, and lets anyone who can write to the folder run code here.
        seed: Of the first labels, the choices and, in `active.fit`, each round's training.
        features: Fixed features of the pool, beside the learned embedding, for selectors that need "features" (without
            them the embedding stands in). A tensor, an array or the path of a `.npy` or `.safetensors` file with one
            row for each point, in the order of the dataset; an encoder, which is a module or a function of a batch and
            is run once over the pool; the name of a layer of the model as it comes, before the first fit, as
            "backbone.pool" of a pretrained one; or "inputs", the flattened inputs. They are kept in `folder`. "auto"
            compares inputs, the model as it comes and the embedding in every query, by how well labels are predicted
            that the model was not trained on.
        feature_dim: Features with more dimensions are reduced to so many principal components. None keeps all. What
            modules and layers give, and anything that was reduced, is scaled to unit length.
        learn_from_graph: Train on unlabeled points, too, with the labels that diffuse to them over the graph of the
            features (without features, of the inputs): True, or `LearnFromGraph(...)` with other settings. They never
            count as labels, and none are used where the graph does not predict the labels there are.
        candidates: For pools that are too large to embed and search in every round: so many unlabeled points, drawn by
            seed in each round, and all labeled ones are what a query sees. With fixed features also the neighbors of
            labeled ones. None sees all.
        cache_layer: Name of a frozen submodule, as "backbone", whose output for each point is kept: later rounds run
            only what comes behind it. Before each pass its weights and buffers, and in it the input of each point, are
            compared with those the output was computed from; what changed is computed again, with a warning. Kept in
            memory up to a quarter of what is free, and beyond that in `folder`, by each rank for its share of the pool.
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
        embedding: Forward | None = None,
        logits: Forward | None = None,
        label: LabelArgument | None = None,
        classes: list[str] | None = None,
        unlabeled: str | int | None = None,
        pool: Dataset[Any] | DataLoader[Any] | None = None,
        pool_batch_size: int | None = None,
        oracle: Callable[..., Any] | None = None,
        num_classes: int | None = None,
        stop_when: Callable[[History], bool] | None = None,
        warm_start: bool = False,
        other_data: Sequence[str | int | Dataset[Any]] = (),
        same_data: Sequence[str | int | Dataset[Any]] = (),
        folder: str | Path | None = None,
        trial_batch: bool = True,
        weights_only: bool = True,
        seed: int = 0,
        features: FeatureArgument = None,
        feature_dim: int | None = 64,
        learn_from_graph: bool | LearnFromGraph = False,
        candidates: int | None = None,
        cache_layer: str | None = None,
    ) -> None:
        super().__init__()
        self.config = RunConfig(
            callback=type(self).__name__,
            query_size=query_size,
            budget=budget,
            selector=as_selector(selector, type(self).__name__),
            initial=query_size if initial is None else initial,
            layer=layer,
            forward=forward,
            embedding=embedding,
            logits=logits,
            label=label,
            classes=classes,
            unlabeled=unlabeled,
            pool=pool,
            pool_batch_size=pool_batch_size,
            oracle=oracle,
            num_classes=num_classes,
            stop_when=stop_when,
            warm_start=warm_start,
            other_data=other_data,
            same_data=same_data,
            folder=folder,
            trial_batch=trial_batch,
            weights_only=weights_only,
            seed=seed,
            features=features,
            feature_dim=feature_dim,
            learn_from_graph=as_settings(type(self).__name__, learn_from_graph),
            candidates=candidates,
            cache_layer=cache_layer,
        )
        self.feature_graph = FeatureGraph()
        self.layer_cache: LayerCache | None = None
        """The output of the layer named in `cache_layer`, from the first query on."""
        self.state: RunState | None = None
        """What the fit under way, or the last one, knows of the run."""
        self.checkpoints: RoundCheckpoints | None = None
        self.fresh_start: FreshStart | None = None
        """Where rounds start from, while `fit` runs them."""
        self.lock: FolderLock | None = None
        """Held while `fit` runs rounds, else by a `trainer.fit` of its own."""
        self.lock_of_this_fit = False
        self.last_folder: Path | None = None
        self.data: dict[str, Any] = {}
        """What `fit` was given last: loaders or a DataModule."""
        self.embeddings: Tensor | None = None
        """Of all candidates, as the last query has them."""
        self.embedded: list[int] = []
        """Their indices."""
        self.source: TrainingSource | None = None
        self.checkpoint_records: list[dict[str, Any]] = []
        self.batches, self.started, self.dry_run_done = 0, 0.0, False
        self.skipped: SkippedFit | None = None
        """The fit under way, if the run is over and it trains nothing."""
        self.num_outputs: int | None = None
        """The width of the classifier, once the dry run has seen it."""

    # Rounds

    reset_each_round = False

    def fit(
        self,
        trainer: Any,
        model: Any,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Any = None,
        *,
        wait: bool = False,
    ) -> History:
        """Fit, query, fit again, until the budget is spent, the pool is empty or `stop_when` returns True.

        Takes the arguments of `trainer.fit`. Each round starts over on the same Trainer: weights (unless `warm_start`),
        epoch, step, optimizers, schedulers and the state of callbacks. `trainer` may be a function that makes a new
        Trainer for each round, with this callback among its callbacks, as strategies that fit only once need it.

        With `oracle=People(...)` it ends after each query, and `history.waiting` says what it waits for. Called again,
        it goes on if the answers are there.

        Args:
            wait: Stay instead, and go on as soon as the answers are there.
        """
        data = {"train_dataloaders": train_dataloaders, "val_dataloaders": val_dataloaders, "datamodule": datamodule}
        self.data = data
        return fit_rounds(self, trainer, model, data, wait)

    def answer(self, answers: Mapping[int, Any], who: str = "", *, folder: str | Path | None = None) -> Outcome:
        """Answer what the run asks: the name or the number of a class by index of the dataset; None skips a point.

        Good answers are on the disk when this returns, the others are in `refused` with the reason. The next
        `active.fit` uses them.

        Args:
            who: Answers. By default the user's name.
            folder: Of the run. By default that of the callback, or of its last fit.
        """
        place = folder or self.run_folder
        if self.config.people is None or place is None:
            raise ValueError(
                f"{type(self).__name__}.answer(...): oracle=People(classes=[...]) is needed, and folder=... before the "
                "first fit."
            )
        return self.config.people.answer(Path(place), answers, who or user_name())

    def predict_labels(self) -> PoolLabels:
        """The labels of the whole pool, diffused from those that are known, with calibrated confidences.

        All that it needs is in the folder of the run, also of one that another process has made or has begun.
        """
        pool = read_known_pool(self.config, self.run_folder, "active.predict_labels()")
        return predict_labels(self.config, pool, self.feature_graph)

    def audit(self, limit: int | None = None) -> list[Question]:
        """Labeled points whose neighbors disagree with their label, most suspicious first.

        Each is predicted from all other labels, which diffuse over the graph of the fixed features, or else of the last
        embedding. Also written as `audit.csv` and `audit.json`, to confirm or correct like any question. Items are
        shown once `fit` knows the dataset, also where it returns at once.

        Args:
            limit: How many at most.
        """
        if self.config.feature_source is not None:
            pool = read_known_pool(self.config, self.run_folder, "active.audit()")
        else:
            pool = embedded_pool(self.state, self.embeddings, self.embedded)
        if self.state is not None:
            dataset = self.state.dataset
        else:
            dataset = training_dataset(self.config, self.data, pool.fingerprint)
        return audit(self.config, pool, dataset, limit)

    @property
    def run_folder(self) -> Path | None:
        """That of the callback, or of its last fit."""
        return Path(self.config.folder) if self.config.folder is not None else self.last_folder

    @property
    def history(self) -> History:
        """The results of the run so far."""
        if self.state is None:
            return History([])
        people, ledger = self.config.people, self.state.ledger
        waiting = people.waiting(ledger.folder, ledger.entries) if people and ledger.folder is not None else None
        return History(ledger.records, waiting)

    # The hooks, in the order Lightning calls them

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self.state, self.checkpoint_records, self.batches, self.started = None, [], 0, time.perf_counter()
            fixed = {"features"} if self.config.feature_source is not None else set()
            check_forward(trainer.strategy, self.config.selector.needs - fixed)
            check_layer(pl_module, self.config.feature_source)
            wait_for_all_ranks(trainer, "the set-up of a fit")
            self.own_folder(trainer)
            check_shared_folder(trainer, self.config.folder_for(trainer))
            self.skipped = skip_if_over(trainer, pl_module, self.config)
            if self.checkpoints is not None:
                check_same_start(trainer, self.checkpoints.start)
            if self.fresh_start is not None:
                self.fresh_start.on_setup(trainer)
            self.source = TrainingSource(trainer)
            self.source.replace(lambda: self.train_dataloader(trainer, pl_module))

    def own_folder(self, trainer: Any) -> None:
        """Lock the folder for a fit by hand; `fit` has it locked already, also for the ranks it starts."""
        folder = self.last_folder = self.config.folder_for(trainer)
        if self.lock is None and folder is not None:
            self.lock, self.lock_of_this_fit = FolderLock(folder), True
            acquire(trainer, self.lock)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.checkpoint_records = state_dict["records"]  # used only where they go beyond the ledger

    def train_dataloader(self, trainer: Any, module: Any) -> Any:
        """The user's training loaders over the labeled points alone."""
        assert self.source is not None
        loaders = self.source.loaders()
        # Lightning forces this order: before its first request for the loaders there is no dataset to open the run on,
        # and no hook comes between that request and their use.
        if self.state is None:
            self.state = open_run(self, trainer, module, loaders)
        if self.state.ledger.awaited is not None:  # people have not answered: this fit ends before its first batch
            if self.skipped is None:
                self.skipped = SkippedFit(trainer)
                rank_zero_info(f"Active learning: nothing is trained, {self.history.waiting}.")
            return loaders
        seed = seed_of(self.config.seed_for(self.state.round), trainer.global_rank)
        return labeled_loaders(self.config, self.state, loaders, seed_of(seed, trainer.current_epoch))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.fresh_start is not None:
            self.fresh_start.on_fit_start(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        folder = self.config.folder_for(trainer)
        if self.state is None or folder is None:
            return
        continue_logged_steps(trainer, self.state.ledger.records)
        if self.checkpoints is not None or trainer.ckpt_path is None:  # not in a fit that users resume in its middle
            move_earlier_checkpoints(trainer, folder, self.state.round)
        if self.checkpoints is not None and self.fresh_start is not None:
            self.fresh_start.on_train_start(trainer)
            self.checkpoints.on_train_start(trainer, self.config.warm_start)
            # From here on a round depends on nothing but its number, so that a run can be resumed at any of them.
            seed_training(self.config.seed_for(self.state.round))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self.state is not None:
            check_training_loaders(
                trainer.train_dataloader,
                self.state.allowed_items(),
                self.state.other_datasets,
                self.state.diffused_items(),
            )
            check_batch_norm(pl_module, len(self.state.pool.labeled))

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.batches += 1

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.fast_dev_run or self.skipped is not None:
            return
        if self.state is None or self.batches == 0:
            raise MisconfigurationException(nothing_trained(trainer, self.checkpoints is not None))
        config, state, seconds = self.config, self.state, time.perf_counter() - self.started
        record = with_fit(new_record(config, state), trainer, seconds, state.diffused)
        record = replace(record, last=reason_to_stop(trainer, config, state, record))
        if record.last is None:
            if self.fresh_start is not None:
                self.fresh_start.before_query(trainer)
            record = self.query(trainer, pl_module, state, record)
        if self.checkpoints is not None and (record.last or config.warm_start):
            self.checkpoints.save_trained(trainer, pl_module, record.round)
        record = commit(trainer, state, record)
        record = answer_question(trainer, state, self.num_outputs) or record
        log_round(trainer, record, state)
        if record.last is not None:
            check_last_labels(trainer, config, state, self.feature_graph)

    def query(self, trainer: Any, module: Any, state: RunState, record: Record) -> Record:
        """Embed the pool and choose points by it (and by a graph, if the selector builds one).

        Their labels are there if the oracle answers at once; else the question is ready to be asked.
        """
        timer = stage_timer_for(trainer, module)
        state = draw_candidates(trainer, self.config, state)
        self.layer_cache = layer_cache_for(trainer, self.config, state, self.layer_cache)
        embedded = embed_pool(trainer, module, self.config, state, timer, self.layer_cache)
        self.embeddings, self.embedded = embedded.embeddings, state.candidates
        state, accuracy = with_best_features(trainer, self.config, state, embedded, timer)
        query, answers = choose_points(trainer, self.config, state, embedded, timer)
        labels = answers.complete(query.indices.tolist()) if state.oracle.immediate else None
        record = replace(record, feature_accuracy=accuracy)
        record = with_query(record, query, labels, predicted_classes(state, embedded, query), timer)
        write_question(trainer, self.config, state, record, embedded)
        return record

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self.source is not None:
            self.source.restore()
            self.source = None
        if self.skipped is not None:
            self.skipped.restore(trainer)
            self.skipped = None
        if self.lock is not None and self.lock_of_this_fit:
            self.lock.release()
            self.lock, self.lock_of_this_fit = None, False

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        entries = without_corrections(self.state.ledger.entries) if self.state is not None else []
        return {"records": [entry.to_json() for entry in entries]}

    @cached_property  # Lightning asks for it at every hook of every batch
    def state_key(self) -> str:
        identity = self.config.identity()
        return self._generate_state_key(selector=identity.selector, seed=identity.seed, initial=identity.initial)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self.checkpoints is not None:
            self.checkpoints.on_save_checkpoint(trainer, checkpoint)
