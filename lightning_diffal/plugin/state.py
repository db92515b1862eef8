"""What one fit knows of the run: the pool, its labels, the ledger and the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader

from lightning_diffal.labeling.people import People
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.guard import check_loader
from lightning_diffal.plugin.data.loader_tree import flatten_loaders, map_loaders, named_loader, without_loader
from lightning_diffal.plugin.data.loaders import candidates_of, hide_labels, restrict_to_labeled
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
    candidates: list[int]
    """Indices of the points that may be asked about."""
    views: list[PoolView]
    """Training datasets that show points of the pool, the pool's own first."""
    other_datasets: list[MapStyle]
    """Training datasets that are not the pool."""
    fingerprint: str
    pool: LabelPool
    ledger: Ledger
    oracle: Oracle | People

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
        candidates=candidates_of(first),
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
    state.candidates[:] = [index for index in state.candidates if index not in ledger.given_up]
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


def labeled_loaders(config: RunConfig, state: RunState, loaders: Any) -> Any:
    """The training loaders over the labeled points alone; the one named `unlabeled` over all, without labels."""
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
        return restrict_to_labeled(loader, positions, None if own else known, state.round, config.label_field)

    return map_loaders(loaders, restrict)
