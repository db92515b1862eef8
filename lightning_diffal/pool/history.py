"""The results of a run, round by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightning_diffal.pool.record import Record

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The question that a run waits for people to answer."""

    round: int
    """The round it follows; 0 is the first labels."""
    indices: list[int]
    """The points asked about, of the dataset."""
    answered: int
    """How many of them have an answer so far."""
    files: list[str]
    """The CSV to fill in, and the tasks for Label Studio."""
    since: str
    """When it was asked, ISO 8601 in UTC."""

    def __str__(self) -> str:
        asked = f"{self.answered} of {len(self.indices)} points answered"
        return f"waiting for answers to round {self.round} since {self.since}: {asked}, {self.files[0]}"


class History(Sequence[dict[str, Any]]):
    """One row for each fit: labels trained on, metrics, and what was queried next.

    Prints as a table. `frame()` gives a pandas data frame, `plot()` draws accuracy against labels. `waiting` is the
    question that people have to answer before the run can go on, None if there is none.
    """

    def __init__(self, records: Sequence[Record], waiting: Waiting | None = None) -> None:
        self.records, self.waiting = list(records), waiting
        self.rows = [row_of(record) for record in self.records if record.round > 0]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        return self.rows[row]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @property
    def labels(self) -> list[int]:
        """How many labels each fit was trained on."""
        return [row["labels"] for row in self.rows]

    def metric(self, name: str | None = None) -> list[float | None]:
        """The values of a metric, one for each fit. Without a name: see `main_metric`."""
        name = name or self.main_metric()
        if not any(name in record.metrics for record in self.records):
            raise KeyError(f"{name!r} was never logged. There are {', '.join(self.metric_names()) or 'no metrics'}.")
        return [record.metrics.get(name) for record in self.records if record.round > 0]

    def metric_names(self) -> list[str]:
        return list(dict.fromkeys(name for record in self.records for name in record.metrics))

    def main_metric(self) -> str:
        """Validation accuracy if it was logged, else any accuracy, else the first metric."""
        names = self.metric_names()
        if not names:
            raise ValueError("No metric was logged. `self.log('val_acc', ...)` in validation_step logs one.")
        return min(names, key=lambda name: ("acc" not in name.lower(), "val" not in name.lower()))

    def frame(self) -> pandas.DataFrame:
        try:
            import pandas  # noqa: PLC0415, an extra
        except ImportError as error:
            raise ImportError("history.frame() needs pandas: `pip install lightning-diffal[plot]`.") from error
        return pandas.DataFrame(self.rows)

    def plot(self, metric: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw a metric against the number of labels."""
        try:
            import matplotlib.pyplot as plt  # noqa: PLC0415, an extra
        except ImportError as error:
            raise ImportError("history.plot() needs matplotlib: `pip install lightning-diffal[plot]`.") from error
        name = metric or self.main_metric()
        axes = ax if ax is not None else plt.subplots(layout="constrained")[1]
        known = [pair for pair in zip(self.labels, self.metric(name), strict=True) if pair[1] is not None]
        selector = self.records[-1].selector.split("(")[0]
        axes.plot(*zip(*known, strict=True), marker="o", markersize=4, label=selector) if known else None
        axes.set(xlabel="labels", ylabel=name)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return axes

    def __str__(self) -> str:
        if not self.rows:
            return "no rounds yet" if self.waiting is None else str(self.waiting)
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = [names, *([format_cell(row.get(name)) for name in names] for row in self.rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        waiting = [str(self.waiting)] if self.waiting is not None else []
        return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:], *waiting])

    __repr__ = __str__


def row_of(record: Record) -> dict[str, Any]:
    """One row of the table."""
    explored = sum(reached is False for reached in record.reached)
    return {
        "round": record.round,
        "labels": record.labeled,
        **record.metrics,
        **({"diffused": int(record.diffused["points"])} if record.diffused else {}),
        "steps": record.steps,
        "asked": len(record.indices),
        "explored": explored,
        "unreached": record.unreached,
        **{f"{name} s": round(seconds, 3) for name, seconds in record.seconds.items()},
    }


def format_cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
