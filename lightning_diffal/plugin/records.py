"""The record of a round, filled step by step: the fit, then the first labels, the query or the end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightning_diffal.diffusion.learn_from_graph import DiffusedPoints
from lightning_diffal.plugin.answers import ask_oracle
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.initial import draw_initial
from lightning_diffal.pool.ledger import finite_or_none
from lightning_diffal.pool.record import Record, now
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
        **asked_of_people(config, state),
    )


def asked_of_people(config: RunConfig, state: RunState) -> dict[str, Any]:
    """What a question to people says beside its points."""
    people = config.people
    if people is None or state.oracle is not people:
        return {}
    return {"classes": list(people.classes), "new_classes": people.allow_new_classes, "asked_at": now()}


def with_fit(record: Record, trainer: Any, seconds: float, diffused: DiffusedPoints | None) -> Record:
    """The last value of everything that was logged as a single number, optimizer steps, seconds, diffused labels."""
    metrics = {name: finite_or_none(float(value)) for name, value in trainer.callback_metrics.items()}
    summary = diffused.summary() if diffused is not None else {}
    return replace(record, metrics=metrics, seconds={"fit": seconds}, steps=trainer.global_step, diffused=summary)


def with_first_points(record: Record, config: RunConfig, state: RunState) -> Record:
    """The first points, which need no model: drawn by seed, or given as indices."""
    initial = config.initial
    if state.round > 0 and isinstance(initial, list):  # people have skipped all of these
        initial = len(initial)
    indices = draw_initial(initial, state.candidates, state.oracle, config.seed)
    unknown = [None] * len(indices)
    return replace(record, indices=indices, labels=[*unknown], scores=[*unknown], reached=[*unknown])


def with_labels(record: Record, trainer: Any, state: RunState) -> Record:
    """The labels that a simulation has at once."""
    return replace(record, labels=[*ask_oracle(trainer, state.oracle, record.indices)])


def with_query(
    record: Record, query: Query, labels: Sequence[int] | None, predicted: Sequence[int], timer: StageTimer
) -> Record:
    """The chosen points, and their labels if they are there.

    Whether points were reached is unknown to selectors that do not count it.
    """
    return replace(
        record,
        indices=query.indices.tolist(),
        labels=[None] * len(query) if labels is None else [*labels],
        scores=[finite_or_none(score) for score in query.scores.tolist()],
        reached=query.reached.tolist() if query.unreached is not None else [None] * len(query),
        predicted=list(predicted),
        unreached=query.unreached,
        seconds={**record.seconds, **timer.seconds},
        metrics={**record.metrics, **timer.metrics},
    )
