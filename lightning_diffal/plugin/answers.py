"""Labels from the oracle, on every rank."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.labeling.people import People
from lightning_diffal.plugin.distributed.rank_agreement import check_same_choice
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.state import RunState, commit, complete
from lightning_diffal.pool.dataset.classes import unsupported
from lightning_diffal.pool.oracle import DatasetOracle, FunctionOracle, Oracle
from lightning_diffal.pool.record import Answered, Record, now


def ask_oracle(
    trainer: Any, oracle: Oracle | People, indices: Sequence[int], num_outputs: int | None = None
) -> list[int]:
    """The labels of points. The user's function is called on rank 0 and its answers are broadcast.

    Args:
        num_outputs: Of the classifier, where it is known: larger labels are refused.
    """
    on_every_rank = isinstance(oracle, DatasetOracle)
    labels = oracle(indices) if on_every_rank else from_rank_zero(trainer, lambda: oracle(indices))
    check_classes(indices, labels, num_outputs)
    return labels


def check_classes(indices: Sequence[int], labels: Sequence[int], num_outputs: int | None) -> None:
    """Refuse labels that the classifier has no output for."""
    if num_outputs is None or max(labels, default=0) < num_outputs:
        return
    index, label = next(pair for pair in zip(indices, labels, strict=True) if pair[1] >= num_outputs)
    raise MisconfigurationException(
        f"label {label} of the point with index {index}, and the classifier has {num_outputs} outputs, for the classes "
        f"0 to {num_outputs - 1}. A model with at least {label + 1} outputs is needed, or labels counted from 0. If "
        f"these are no classes: {unsupported('regression')}"
    )


def answer_question(trainer: Any, state: RunState, num_outputs: int | None) -> Record | None:
    """Ask the user's function about the question that is open, and write the whole round; None if none is open.

    The question is on the disk by then: a run that is killed while someone answers goes on here, without fitting again.
    """
    record = state.ledger.awaited
    if record is None or not isinstance(state.oracle, FunctionOracle):
        return None
    labels = ask_oracle(trainer, state.oracle, record.indices, num_outputs)
    if state.ledger.entries[-1] is record:
        return complete(trainer, state, replace(record, labels=[*labels]))
    # Something was corrected while the question was open.
    count = len(labels)
    who, when = ["oracle"] * count, [now()] * count
    commit(trainer, state, Answered(round=record.round, indices=record.indices, labels=labels, who=who, when=when))
    return state.ledger.records[-1]


class QueryAnswers:
    """The answers a selector may have while it chooses: at most `size`, and only of points that it then chooses.

    Args:
        candidates: Index of the dataset for each row of the snapshot.
        num_outputs: Of the classifier, where it is known.
    """

    def __init__(
        self, trainer: Any, oracle: Oracle | People, candidates: Tensor, size: int, num_outputs: int | None = None
    ) -> None:
        self.trainer, self.oracle, self.candidates, self.size = trainer, oracle, candidates, size
        self.num_outputs = num_outputs
        self.labels: dict[int, int] = {}

    def __call__(self, rows: Tensor) -> Tensor:
        """The classes of rows of the snapshot, during the query."""
        indices = self.candidates[rows.cpu()].tolist()
        new = [index for index in indices if index not in self.labels]
        if len(self.labels) + len(new) > self.size:
            raise ValueError(f"The selector asked for more than the {self.size} labels of this query.")
        if not isinstance(self.oracle, DatasetOracle):
            check_same_choice(self.trainer, indices)
        self.ask(new)
        return torch.tensor([self.labels[index] for index in indices], device=rows.device)

    def complete(self, indices: Sequence[int]) -> list[int]:
        """The labels of all chosen points; those not asked for during the query are asked for now."""
        not_chosen = sorted(self.labels.keys() - set(indices))
        if not_chosen:
            raise ValueError(f"The selector asked for the label of point {not_chosen[0]} and did not choose it.")
        self.ask([index for index in indices if index not in self.labels])
        return [self.labels[index] for index in indices]

    def ask(self, indices: list[int]) -> None:
        if indices:
            labels = ask_oracle(self.trainer, self.oracle, indices, self.num_outputs)
            self.labels.update(zip(indices, labels, strict=True))
