"""What users see of a round."""

from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from lightning_diffal.plugin.state import Run
from lightning_diffal.pool.ledger import Record


def last_metrics(trainer: Any) -> dict[str, float]:
    """The last value of everything that was logged as a single number."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def tell(trainer: Any, record: Record, run: Run) -> None:
    """One line for people, and numbers for the loggers."""
    rank_zero_info(summary(record))
    for logger in trainer.loggers:
        logger.log_metrics(measures(record, run), step=record.round)
        logger.save()


def summary(record: Record) -> str:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in record.metrics.items() if value is not None)
    parts = [
        f"Active learning, round {record.round}: fitted on {record.labeled} labels" + (f" ({metrics})" * bool(metrics))
    ]
    if record.last is not None:
        why = {"budget": "the budget is spent", "pool": "the pool is empty", "stop_when": "stop_when says so"}
        parts.append(f"no query, {why[record.last]}")
    else:
        explored = sum(reached is False for reached in record.reached)
        how = f", {explored} of them where no label had reached" if record.unreached is not None else ""
        parts.append(f"asked {len(record.indices)} more{how}")
    took = [f"{name} {seconds:.2g} s" for name, seconds in record.seconds.items()]
    return "; ".join([*parts, ", ".join(took)])


def measures(record: Record, run: Run) -> dict[str, float]:
    """What goes to the loggers, at step = round."""
    asked = len(record.indices)
    values: dict[str, float | None] = {
        "labels": record.labeled,
        "classes_found": len(run.pool.labels.unique()) - int(len(run.pool.unlabeled) > 0),
        **{f"seconds_{stage}": seconds for stage, seconds in record.seconds.items()},
        **record.metrics,
    }
    if record.unreached is not None and asked:
        explored = sum(reached is False for reached in record.reached) / asked
        values |= {"unreached": record.unreached / run.size, "explored": explored, "refined": 1 - explored}
    return {f"active/{name}": float(value) for name, value in values.items() if value is not None}
