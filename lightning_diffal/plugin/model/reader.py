"""Embedding and logits of a batch, by the model's own layers or by functions of the user's."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.plugin.distributed.strategies import through_wrapper
from lightning_diffal.plugin.model.batches import Forward, model_runner
from lightning_diffal.plugin.model.layer_hook import LayerHook, to_rows
from lightning_diffal.plugin.model.logits import as_rows, pad_binary
from lightning_diffal.pool.dataset.classes import describe

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ModelReading:
    """How embedding and logits are read off the model: the user's arguments of those names."""

    layer: str | None = None
    forward: Forward | None = None
    embedding: Forward | None = None
    logits: Forward | None = None
    label: Any = None
    """Key of the label in a batch that is a dictionary."""
    num_classes: int | None = None
    """Where it is known before the model has run."""


class ModelReader:
    """Runs a model on batches. The model itself runs for what no function of the user's gives."""

    def __init__(self, trainer: Any, module: Any, reading: ModelReading) -> None:
        self.trainer, self.module, self.reading = trainer, module, reading
        self.hook = LayerHook(module, reading.layer, reading.num_classes)
        # Where there is no other way to run the model, `logits=` is one.
        self.runs_logits = reading.logits is not None and reading.forward is None
        self.run = through_wrapper(
            trainer.strategy, module, model_runner(module, reading.forward or reading.logits, reading.label)
        )
        self.embedding, self.logits = self.wrap(reading.embedding), self.wrap(reading.logits)

    def wrap(self, function: Forward | None) -> Callable[[Any, int], Any] | None:
        if function is None:
            return None
        return through_wrapper(self.trainer.strategy, self.module, model_runner(self.module, function))

    def call(self, function: Callable[[Any, int], Any], batch: Any, batch_idx: int) -> Any:
        self.hook.clear()
        with self.trainer.precision_plugin.forward_context():
            return function(batch, batch_idx)

    def read(self, batch: Any, batch_idx: int, rows: int, needs: frozenset[str]) -> tuple[Tensor | None, Tensor | None]:
        """The embedding (rows, d), if it is needed, and the logits (rows, c), as far as they are needed or known."""
        embedding = logits = None
        needs_logits = bool(needs & {"logits", "stochastic"})
        by_layers = "embeddings" in needs and self.embedding is None
        if by_layers or (needs_logits and self.logits is None):
            output = self.call(self.run, batch, batch_idx)
            logits = rows_of_logits(output, rows) if self.runs_logits else self.hook.logits(rows, output)
            embedding = self.hook.embedding(rows, output) if by_layers else None
            if needs_logits and self.logits is None:
                logits = require_logits(logits, output, rows)
        # Once at least, to count the classes.
        if self.logits is not None and (needs_logits or batch_idx == 0) and not (by_layers and self.runs_logits):
            logits = rows_of_logits(self.call(self.logits, batch, batch_idx), rows)
        if self.embedding is not None and "embeddings" in needs:
            embedding = to_rows(self.call(self.embedding, batch, batch_idx), rows, "embedding=...")
        if batch_idx == 0 and logits is None and not by_layers:
            logits = self.try_for_logits(batch, rows)
        return embedding, logits

    def try_for_logits(self, batch: Any, rows: int) -> Tensor | None:
        """What the model says of itself, to count the classes. Where `embedding=` is given, it may not run at all."""
        try:
            return self.hook.logits(rows, self.call(self.run, batch, 0))
        except Exception as error:  # whatever a user's model raises
            log.debug("The model does not say how many classes there are: %s", error)
            return None

    def run_for_logits(self, batch: Any, batch_idx: int) -> Any:
        return self.call(self.run if self.logits is None else self.logits, batch, batch_idx)

    def logits_in(self, rows: int, output: Any) -> Tensor:
        """The logits in what `run_for_logits` returned."""
        if self.logits is not None:
            return rows_of_logits(output, rows)
        return require_logits(self.hook.logits(rows, output), output, rows)


def rows_of_logits(output: Any, rows: int) -> Tensor:
    """What the user's `logits=` gave."""
    found = as_rows(output, rows)
    if found is None:
        raise MisconfigurationException(
            f"logits=... gave {describe(output)} for a batch of {rows} points: floating-point numbers of shape "
            f"({rows}, classes) are needed."
        )
    return pad_binary(found)


def require_logits(logits: Tensor | None, output: Any, rows: int) -> Tensor:
    if logits is None:
        raise MisconfigurationException(
            f"The selector needs logits, and for a batch of {rows} points the model returned {describe(output)}: one "
            f"row of numbers for each point, ({rows}, classes), is needed, as a tensor, .logits, ['logits'] or the "
            "first of a tuple. Where the model has them elsewhere, logits=lambda module, batch: ... gives them. "
            "A class for each token or pixel is not supported."
        )
    return logits
