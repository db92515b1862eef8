"""What users see of a round: one line, and numbers in their loggers."""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.record import Record

REASONS = {"budget": "the budget is spent", "pool": "the pool is empty", "stop_when": "stop_when returned True"}


def continue_logged_steps(trainer: Any, records: Sequence[Record]) -> None:
    """Let the steps of loggers count over all rounds, so that one run has one curve; training still starts at step 0.

    Everything Lightning logs goes by this counter of its epoch loop and nothing else does. It is part of the loop's
    state, but no public attribute: a test looks at the steps that loggers get.
    """
    loop = trainer.fit_loop.epoch_loop
    if loop._batches_that_stepped == 0:
        loop._batches_that_stepped = sum(record.steps for record in records)


def log_round(trainer: Any, record: Record, state: RunState) -> None:
    rank_zero_info(summary(record))
    for logger in trainer.loggers:
        logger.log_metrics(round_metrics(record, state), step=record.round)
        logger.save()


def summary(record: Record) -> str:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in record.metrics.items() if value is not None)
    fitted = f"Active learning, round {record.round}: fitted on {record.labeled} labels"
    if record.diffused:
        fitted += (
            f" and {record.diffused['points']:.0f} diffused ones (leave-one-out accuracy "
            f"{record.diffused['leave_one_out']:.2f})"
        )
    parts = [fitted + (f" ({metrics})" * bool(metrics))]
    if record.last is not None:
        parts.append(f"no query, {REASONS[record.last]}")
    else:
        explored = sum(reached is False for reached in record.reached)
        how = f", {explored} of them where no label had reached" if record.unreached is not None else ""
        parts.append(f"asked {len(record.indices)} more{how}")
    seconds = [f"{name} {value:.2g} s" for name, value in record.seconds.items()]
    return "; ".join([*parts, ", ".join(seconds)])


def round_metrics(record: Record, state: RunState) -> dict[str, float]:
    """What goes to the loggers, at step = round."""
    values: dict[str, float | None] = {
        "labels": record.labeled,
        "classes_found": len(state.pool.labels.unique()) - int(len(state.pool.unlabeled) > 0),
        **{f"seconds_{stage}": seconds for stage, seconds in record.seconds.items()},
        **{f"diffused_{name}": value for name, value in record.diffused.items()},
        **{f"feature_accuracy_{name}": value for name, value in record.feature_accuracy.items()},
        **record.metrics,
    }
    if record.unreached is not None and record.indices:
        explored = sum(reached is False for reached in record.reached) / len(record.indices)
        values |= {"unreached": record.unreached / len(state.pool), "explored": explored, "refined": 1 - explored}
    return {f"active/{name}": float(value) for name, value in values.items() if value is not None}
