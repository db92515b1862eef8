"""A pool, its oracle and its ledger, as one fit finds them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from lightning_diffal.plugin.loaders import candidates_of, check_loader, leaves, narrowed
from lightning_diffal.plugin.rank_zero import from_rank_zero
from lightning_diffal.pool.fingerprint import fingerprint, length_of
from lightning_diffal.pool.items import MapStyle
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger, Record
from lightning_diffal.pool.oracle import AnswerFunction, DatasetOracle, FunctionOracle, Oracle, innermost


class Run:
    """What one fit needs to know of the run so far. Opened anew for each: the ledger on the disk is the truth.

    The pool is the dataset of the first training loader. Other loaders over as many points show the same points in
    another way and are narrowed alike; loaders over other data are left alone.
    """

    def __init__(self, trainer: Any, loaders: Any, folder: Path | None, oracle: AnswerFunction | None) -> None:
        self.trainer, self.folder = trainer, folder
        for loader in leaves(loaders):
            check_loader(loader)
        self.loader: DataLoader[Any] = leaves(loaders)[0]
        self.dataset: MapStyle = self.loader.dataset
        self.size = length_of(self.dataset) or 0
        if self.size == 0:
            raise MisconfigurationException(f"The training dataset {type(self.dataset).__name__} is empty.")
        self.others = [loader.dataset for loader in leaves(loaders) if not self.shows_the_pool(loader)]
        self.candidates = candidates_of(self.loader)
        self.pool, self.ledger = LabelPool(self.size), Ledger(folder)
        self.fingerprint = fingerprint(self.dataset, self.size)
        check_ranks(trainer, self.fingerprint)
        self.oracle: Oracle
        if oracle is None:
            self.oracle = DatasetOracle(self.dataset)
        else:
            self.oracle = FunctionOracle(oracle, folder and folder / "answers.jsonl")

    def shows_the_pool(self, loader: "DataLoader[Any]") -> bool:
        if length_of(loader.dataset) == self.size:
            return True
        if innermost(loader.dataset) is innermost(self.dataset):
            raise MisconfigurationException(
                f"Two training loaders draw from one dataset through different subsets, of {self.size} and "
                f"{length_of(loader.dataset)} points: which of them are labeled cannot be told. Give both the same one."
            )
        return False

    def narrowed(self, loader: "DataLoader[Any]") -> "DataLoader[Any]":
        """A training loader that draws labeled points only."""
        if any(loader.dataset is other for other in self.others):
            return loader
        labeled = self.pool.labeled
        labels = None if isinstance(self.oracle, DatasetOracle) else self.pool.labels[labeled].tolist()
        return narrowed(loader, labeled.tolist(), labels, len(self.ledger.records))

    def unlabeled(self) -> int:
        """How many points could still be asked about."""
        return len(self.candidates) - len(self.pool.labeled)

    def answers(self, indices: Sequence[int]) -> list[int]:
        """What the oracle says, on every rank. A function of the user's is asked on one."""
        if isinstance(self.oracle, DatasetOracle):
            return self.oracle(indices)
        return from_rank_zero(self.trainer, lambda: self.oracle(indices))

    def adopt(self, remembered: Sequence[dict[str, Any]], kinship: dict[str, Any]) -> None:
        """Go on from a checkpoint that remembers more rounds than the ledger; never back to one that knows less."""
        for record in self.ledger.missing(remembered, **kinship):
            self.commit(record)

    def commit(self, record: Record) -> Record:
        """Write a round on one rank and tell it to all."""

        def written() -> Record:
            self.ledger.append(record, self.pool)
            return record

        heard = from_rank_zero(self.trainer, written)
        if not self.trainer.is_global_zero:
            self.ledger.hear(heard, self.pool)
        return heard


def check_ranks(trainer: Any, fingerprint: str) -> None:
    """Refuse to start, on every rank, if one of them sees another dataset."""
    if trainer.world_size == 1:
        return
    number = int(fingerprint.split("-")[1][:15], 16)
    numbers = trainer.strategy.all_gather(torch.tensor(number, device=trainer.strategy.root_device))
    others = [rank for rank, theirs in enumerate(numbers.tolist()) if theirs != numbers.tolist()[0]]
    if others:
        raise MisconfigurationException(
            f"Rank {others[0]} sees another training dataset than rank 0: their indices would name other points. Is "
            "data split or downloaded at random on each rank? A generator with a fixed seed splits alike."
        )


class AnswerSheet:
    """The answers a selector may have while it chooses: so many, and only of points that it then does choose."""

    def __init__(self, ask: Callable[[list[int]], list[int]], rows: Tensor, size: int) -> None:
        self.ask, self.rows, self.size = ask, rows, size
        self.given: dict[int, int] = {}

    def __call__(self, places: Tensor) -> Tensor:
        indices = self.rows[places.cpu()].tolist()
        fresh = [index for index in indices if index not in self.given]
        if len(self.given) + len(fresh) > self.size:
            raise ValueError(f"The selector asked for more than the {self.size} labels of this query.")
        if fresh:
            self.given.update(zip(fresh, self.ask(fresh), strict=True))
        return torch.tensor([self.given[index] for index in indices], device=places.device)

    def settle(self, indices: list[int]) -> list[int]:
        """The labels of the points that were chosen, those asked already included."""
        peeked = sorted(self.given.keys() - set(indices))
        if peeked:
            raise ValueError(f"The selector looked at the label of point {peeked[0]} and did not choose it.")
        missing = [index for index in indices if index not in self.given]
        if missing:
            self.given.update(zip(missing, self.ask(missing), strict=True))
        return [self.given[index] for index in indices]
