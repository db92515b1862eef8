"""What one fit knows of the run: the pool, its labels, the ledger and the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.guard import check_loader, shows_pool
from lightning_diffal.plugin.data.loader_tree import flatten_loaders, map_loaders, named_loader, without_loader
from lightning_diffal.plugin.data.loaders import candidates_of, hide_labels, restrict_to_labeled
from lightning_diffal.plugin.distributed.rank_agreement import check_same_dataset
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.pool.fingerprint import length_of, match_fingerprint, take_fingerprint
from lightning_diffal.pool.items import MapStyle
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger, Record, RunIdentity
from lightning_diffal.pool.oracle import DatasetOracle, FunctionOracle, Oracle


@dataclass(frozen=True, kw_only=True, eq=False)
class RunState:
    """Read from the ledger at the start of each fit: what is on the disk is the truth.

    The pool is the dataset of the first training loader. Other loaders over as many points show the same points in
    another way and are restricted too; loaders over other data are left alone.
    """

    loader: "DataLoader[Any]"
    """The first training loader, as the user made it."""
    candidates: list[int]
    """Indices of the points that may be asked about."""
    other_datasets: list[MapStyle]
    """Training datasets that are not the pool."""
    fingerprint: str
    pool: LabelPool
    ledger: Ledger
    oracle: Oracle

    @property
    def dataset(self) -> MapStyle:
        return self.loader.dataset

    @property
    def round(self) -> int:
        """The number of the round under way. Round 0 is the first labels."""
        return len(self.ledger.records)

    @property
    def num_unlabeled(self) -> int:
        """How many points could still be asked about."""
        return len(self.candidates) - len(self.pool.labeled)


def open_state(trainer: Any, config: RunConfig, loaders: Any) -> RunState:
    """The state of the run in the config's folder; rank 0 alone reads it."""
    for loader in flatten_loaders(loaders):
        check_loader(loader)
    first, *others = without_loader(loaders, config.unlabeled)
    size = length_of(first.dataset)
    if not size:
        raise MisconfigurationException(f"The training dataset {type(first.dataset).__name__} is empty.")
    folder = config.folder_for(trainer)
    found = take_fingerprint(first.dataset, size, config.label_field)
    check_same_dataset(trainer, found)
    ledger = Ledger(folder)
    recorded = from_rank_zero(trainer, ledger.recorded_dataset)
    state = RunState(
        loader=first,
        candidates=candidates_of(first),
        other_datasets=[loader.dataset for loader in others if not shows_pool(loader, first.dataset)],
        # Rank 0's: where items are random, another rank may have seen others.
        fingerprint=from_rank_zero(
            trainer,
            lambda: (
                str(found)
                if recorded is None
                else match_fingerprint(found, recorded, first.dataset, config.label_field)
            ),
        ),
        pool=LabelPool(size),
        ledger=ledger,
        oracle=DatasetOracle(first.dataset, config.label_field)
        if config.oracle is None
        else FunctionOracle(config.oracle, folder / "answers.jsonl", config.label_field)
        if folder is not None
        else FunctionOracle(stand_in_labels, None),
    )
    identity = config.identity(state.fingerprint)
    state.ledger.replay(from_rank_zero(trainer, lambda: state.ledger.read(identity)), state.pool)
    return state


def stand_in_labels(indices: Sequence[int]) -> list[int]:
    """Instead of an oracle in a `fast_dev_run`, which tries one batch and should cost nobody's time."""
    return [0] * len(indices)


def restore_from_checkpoint(
    trainer: Any, state: RunState, checkpoint_records: Sequence[dict[str, Any]], identity: RunIdentity
) -> None:
    """Add the rounds of a checkpoint that the ledger does not have. A checkpoint with fewer changes nothing."""
    for record in state.ledger.records_beyond(checkpoint_records, identity):
        commit(trainer, state, record)


def commit(trainer: Any, state: RunState, record: Record) -> Record:
    """Write a round on rank 0, then apply it on every rank."""

    def append() -> Record:
        state.ledger.append(record, state.pool)
        return record

    committed = from_rank_zero(trainer, append)
    if not trainer.is_global_zero:
        state.ledger.apply(committed, state.pool)
    return committed


def labeled_loaders(state: RunState, loaders: Any, config: RunConfig) -> Any:
    """The training loaders over the labeled points alone; the one named `unlabeled` over all, without labels."""
    indices = state.pool.labeled
    labels = None if isinstance(state.oracle, DatasetOracle) else state.pool.labels[indices].tolist()
    unlabeled = named_loader(loaders, config.unlabeled)

    def restrict(loader: "DataLoader[Any]") -> "DataLoader[Any]":
        if loader is unlabeled:
            return hide_labels(loader, config.label_field)
        if any(loader.dataset is other for other in state.other_datasets):
            return loader
        return restrict_to_labeled(loader, indices.tolist(), labels, state.round, config.label_field)

    return map_loaders(loaders, restrict)
