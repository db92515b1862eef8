"""The record of a round, filled step by step: the fit, then the first labels, the query or the end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightning_diffal.plugin.answers import ask_oracle
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.initial import draw_initial
from lightning_diffal.pool.ledger import finite_or_none
from lightning_diffal.pool.record import Record
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.query import Query


def new_record(config: RunConfig, state: RunState) -> Record:
    """The round under way, before anything has happened in it."""
    identity = config.identity(state.fingerprint)
    return Record(
        round=state.round,
        labeled=len(state.pool.labeled),
        indices=[],
        labels=[],
        scores=[],
        reached=[],
        selector=identity.selector,
        seeds={"run": config.seed, "round": config.seed_for(state.round)},
        initial=identity.initial,
        dataset=state.fingerprint,
        features=identity.features,
    )


def with_fit(record: Record, trainer: Any, seconds: float) -> Record:
    """The last value of everything that was logged as a single number, optimizer steps and seconds."""
    metrics = {name: finite_or_none(float(value)) for name, value in trainer.callback_metrics.items()}
    return replace(record, metrics=metrics, seconds={"fit": seconds}, steps=trainer.global_step)


def with_first_labels(record: Record, trainer: Any, config: RunConfig, state: RunState) -> Record:
    """First labels that need no model: drawn by seed, or given as indices."""
    indices = draw_initial(config.initial, state.candidates, state.oracle, config.seed)
    labels, unknown = ask_oracle(trainer, state.oracle, indices), [None] * len(indices)
    return replace(record, indices=indices, labels=labels, scores=[*unknown], reached=[*unknown])


def with_query(record: Record, query: Query, labels: Sequence[int], timer: StageTimer) -> Record:
    """The chosen points and their labels. Whether they were reached is unknown to selectors that do not count it."""
    return replace(
        record,
        indices=query.indices.tolist(),
        labels=list(labels),
        scores=[finite_or_none(score) for score in query.scores.tolist()],
        reached=query.reached.tolist() if query.unreached is not None else [None] * len(query),
        unreached=query.unreached,
        seconds={**record.seconds, **timer.seconds},
    )
