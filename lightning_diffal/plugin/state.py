"""What one fit knows of the run: the pool, its labels, the ledger and the oracle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from lightning_diffal.diffusion.learn_from_graph import DiffusedPoints
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.labeling.people import People
from lightning_diffal.labels import UNLABELED
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.diffused_view import with_diffused
from lightning_diffal.plugin.data.guard import check_loader
from lightning_diffal.plugin.data.loader_tree import flatten_loaders, map_loaders, named_loader, without_loader
from lightning_diffal.plugin.data.loaders import RelabeledView, candidates_of, hide_labels, restrict_to_labeled
from lightning_diffal.plugin.data.second_loaders import PoolView, sort_loaders
from lightning_diffal.plugin.distributed.rank_agreement import check_same_dataset
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.pool.dataset.fingerprint import length_of, match_fingerprint, take_fingerprint
from lightning_diffal.pool.dataset.items import MapStyle
from lightning_diffal.pool.folder.answer_file import AnswerFile
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.ledger_entries import RunIdentity, first_labels_of
from lightning_diffal.pool.oracle import DatasetOracle, FunctionOracle, Oracle, num_classes_of
from lightning_diffal.pool.record import Answered, Entry, Record

Line = TypeVar("Line", bound=Record | Answered)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunState:
    """Read from the ledger at the start of each fit: what is on the disk is the truth.

    The pool is the dataset of the first training loader. Other loaders that show points of it are restricted too;
    loaders over other data are left alone.
    """

    loader: "DataLoader[Any]"
    """The first training loader, as the user made it."""
    points: list[int]
    """Indices of the points that the loader can draw."""
    candidates: list[int]
    """Those of them that may be asked about: people have not given them up."""
    views: list[PoolView]
    """Training datasets that show points of the pool, the pool's own first."""
    other_datasets: list[MapStyle]
    """Training datasets that are not the pool."""
    fingerprint: str
    pool: LabelPool
    ledger: Ledger
    oracle: Oracle | People
    features: Float[Tensor, "candidates f"] | None = None
    """Fixed features of the candidates, on the CPU; None where there are none, and in a `fast_dev_run`."""
    feature_sets: dict[str, Tensor] = field(default_factory=dict)
    """All fixed features by name: one, or those that `features="auto"` chooses from."""
    build_feature_graph: Callable[..., NeighborGraph] = build_graph
    """Makes the graph of the features, or reads it from the run's folder."""

    diffused: DiffusedPoints | None = None
    """Unlabeled points that this fit trains on with diffused labels, by their index in the dataset."""

    @property
    def dataset(self) -> MapStyle:
        return self.loader.dataset

    @property
    def round(self) -> int:
        """The number of the round under way. Round 0 is the first labels."""
        return len(self.ledger.records)

    def allowed_items(self) -> list[tuple[MapStyle, set[int]]]:
        """The items of each training dataset that may be trained on: those whose label is known."""
        labels = self.pool.labels
        return [(view.dataset, set(view.labeled(labels)[0])) for view in self.views]

    @cached_property
    def diffused_labels(self) -> Int[Tensor, " n"]:
        """The diffused label of each point of the pool that is trained on with it, -1 for all others."""
        labels = torch.full_like(self.pool.labels, UNLABELED)
        if self.diffused is not None:
            labels[self.diffused.rows] = self.diffused.labels
        return labels

    @property
    def expected_accuracy(self) -> Float[Tensor, " n"]:
        """The probability that the diffused label of a point is right, 0 for all others."""
        expected = torch.zeros(len(self.pool))
        if self.diffused is not None:
            expected[self.diffused.rows] = self.diffused.expected.float()
        return expected

    def diffused_items(self) -> list[tuple[MapStyle, set[int]]]:
        """The items of each training dataset that may be trained on with a diffused label."""
        return [(view.dataset, set(view.labeled(self.diffused_labels)[0])) for view in self.views]

    def limit_classes(self, num_classes: int | None) -> None:
        """Let the oracle refuse answers beyond the classes there are, as far as that is known."""
        if isinstance(self.oracle, FunctionOracle):
            count = num_classes or num_classes_of(self.dataset) or 0
            self.oracle.num_classes = count if count > 1 else None  # a single output is a probability of two classes

    @property
    def num_unlabeled(self) -> int:
        """How many points could still be asked about."""
        return len(self.candidates) - len(self.pool.labeled)


def open_state(trainer: Any, config: RunConfig, loaders: Any) -> RunState:
    """The state of the run in the config's folder; rank 0 alone reads it."""
    for loader in flatten_loaders(loaders):
        check_loader(loader)
    first = without_loader(loaders, config.unlabeled)[0]
    size = length_of(first.dataset)
    if not size:
        raise MisconfigurationException(f"The training dataset {type(first.dataset).__name__} is empty.")
    views, others = sort_loaders(loaders, config.other_data, config.same_data, config.unlabeled)
    folder = config.folder_for(trainer)
    ledger, dataset = Ledger(folder), fingerprint_of(trainer, config, folder, first.dataset, size)
    answers = AnswerFile(folder, dataset) if folder is not None else None
    state = RunState(
        loader=first,
        points=candidates_of(first),
        candidates=[],
        views=views,
        other_datasets=others,
        fingerprint=dataset,
        pool=LabelPool(size),
        ledger=ledger,
        oracle=oracle_of(config, first.dataset, answers),
    )

    def read_folder() -> list[Entry]:
        entries = ledger.read(config.identity(dataset))
        if config.people is not None and folder is not None:
            new = config.people.collect(folder, entries, config.budget)
            ledger.write(new)
            return [*entries, *new]
        if answers is not None and config.oracle is not None:
            answers.read(first_labels_of(entries))
        return entries

    ledger.replay(from_rank_zero(trainer, read_folder), state.pool)
    given_up = ledger.given_up
    state.candidates[:] = [index for index in state.points if index not in given_up]
    if config.people is not None:
        config.people.update_classes(ledger.entries)
    return state


def fingerprint_of(trainer: Any, config: RunConfig, folder: Path | None, dataset: MapStyle, size: int) -> str:
    """The dataset's fingerprint, as the ledger has it if it may be of this dataset."""
    found = take_fingerprint(dataset, size, config.label_field)
    check_same_dataset(trainer, found)

    def match() -> str:
        recorded = Ledger(folder).recorded_dataset()
        return str(found) if recorded is None else match_fingerprint(found, recorded, dataset, config.label_field)

    return from_rank_zero(trainer, match)  # where items are random, another rank may have read others


def oracle_of(config: RunConfig, dataset: MapStyle, answers: AnswerFile | None) -> Oracle | People:
    """Who answers: the dataset itself, people, or the user's function, whose answers are kept in a file."""
    if config.oracle is None:
        return DatasetOracle(dataset, config.label_field)
    if answers is None:
        return FunctionOracle(stand_in_labels, None)
    if isinstance(config.oracle, People):
        return config.oracle
    return FunctionOracle(config.oracle, answers, config.label_field)


def stand_in_labels(indices: Sequence[int]) -> list[int]:
    """Instead of an oracle in a `fast_dev_run`, which tries one batch and should cost nobody's time."""
    return [0] * len(indices)


def restore_from_checkpoint(
    trainer: Any, state: RunState, checkpoint_records: Sequence[dict[str, Any]], identity: RunIdentity
) -> None:
    """Add the rounds of a checkpoint that the ledger does not have. A checkpoint with fewer changes nothing."""
    for entry in state.ledger.entries_beyond(checkpoint_records, identity):
        commit(trainer, state, entry)


def commit(trainer: Any, state: RunState, entry: Line) -> Line:
    """Write a round, a question or answers on rank 0, then apply it on every rank."""

    def append() -> Line:
        state.ledger.append(entry, state.pool)
        return entry

    committed = from_rank_zero(trainer, append)
    if not trainer.is_global_zero:
        state.ledger.apply(committed, state.pool)
    return committed


def complete(trainer: Any, state: RunState, record: Record) -> Record:
    """Write on rank 0 a round with its labels in the place of its question, then apply it on every rank."""

    def replace_question() -> Record:
        state.ledger.complete(record, state.pool)
        return record

    completed = from_rank_zero(trainer, replace_question)
    if not trainer.is_global_zero:
        state.ledger.apply_completion(completed, state.pool)
    return completed


def labeled_loaders(config: RunConfig, state: RunState, loaders: Any, draw_seed: int = 0) -> Any:
    """The training loaders over the labeled points alone; the one named `unlabeled` over all, without labels.

    Where there are points with diffused labels, some of them join each batch.

    Args:
        draw_seed: Of which ones.
    """
    # Lightning or the user's code may ask again, and new datasets may be made then. Those before may still be in use.
    views, others = sort_loaders(loaders, config.other_data, config.same_data, config.unlabeled)
    state.views[:] = views + [old for old in state.views if all(old.dataset is not view.dataset for view in views)]
    state.other_datasets[:] = others + [
        old for old in state.other_datasets if all(old is not other for other in others)
    ]
    if len(state.views[0].index) != len(state.pool):
        raise MisconfigurationException(
            f"The training dataset had {len(state.pool)} points, and {len(state.views[0].index)} when it was asked for "
            "again."
        )
    labels, unlabeled = state.pool.labels, named_loader(loaders, config.unlabeled)
    # In a simulation the dataset's own labels are those revealed, unless some were corrected.
    own = isinstance(state.oracle, DatasetOracle) and not state.ledger.corrections

    def restrict(loader: "DataLoader[Any]") -> "DataLoader[Any]":
        if loader is unlabeled:
            return hide_labels(loader, config.label_field)
        view = next((view for view in state.views if view.dataset is loader.dataset), None)
        if view is None:
            return loader
        positions, known = view.labeled(labels)
        labeled = restrict_to_labeled(loader, positions, None if own else known, state.round, config.label_field)
        positions, diffused = view.labeled(state.diffused_labels)
        weight = config.learn_from_graph.weight if config.learn_from_graph is not None else False
        if not positions and weight is False:
            return labeled
        more = RelabeledView(loader.dataset, positions, diffused, config.label_field)
        weights = state.expected_accuracy[view.index[positions]].tolist()
        share = state.diffused.share if state.diffused is not None else 0.0
        return with_diffused(labeled, more, share, draw_seed, weight, weights)

    return map_loaders(loaders, restrict)
