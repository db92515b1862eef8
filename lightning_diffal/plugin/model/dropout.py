"""Several forward passes with only the dropout layers in training mode."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from lightning_diffal.selectors.uncertainty import entropy

log = logging.getLogger(__name__)

DROPOUT = nn.modules.dropout._DropoutNd


class DropoutPasses:
    """Passes of a batch through a model in eval mode, all but its dropout layers.

    Up to the first dropout layer all passes are the same. There the rows of the batch are repeated, as often as memory
    allows, and one pass does the work of many: with dropout only in its head, a network costs little more than one
    pass. Not every model allows that: `allows_repeating` tests it, `repeat_rows` turns it on.

    Args:
        logits_of: `(rows, output) -> logits`, from the output of the model.
        max_entries: Numbers that enter the first dropout layer at a time, unless one batch is larger.
    """

    def __init__(
        self, module: nn.Module, passes: int, logits_of: Callable[[int, Any], Tensor], max_entries: int = 2**24
    ) -> None:
        self.passes, self.logits_of, self.max_entries, self.repeat_rows = passes, logits_of, max_entries, False
        dropout = [child for child in module.modules() if isinstance(child, DROPOUT)]
        self.layers = [layer for layer in dropout if layer.p > 0]
        if not self.layers:
            idle = f" that drops anything: p = 0 in all {len(dropout)}" if dropout else ""
            raise MisconfigurationException(
                f"The selector needs stochastic passes, and {type(module).__name__} has no dropout layer{idle}. The "
                "paper adds one after each hidden fully connected layer, as nn.Dropout(0.5)."
            )

    def allows_repeating(self, run: Callable[[], Any], rows: int, logits: Tensor) -> bool:
        """Whether repeated rows have the same logits as single ones. `logits` are those of a pass without dropout.

        They differ, for example, where a skip connection goes around a dropout layer, or where rows are mixed.
        """
        try:
            again = self.forward_repeated(run, rows, 2)
        except Exception as error:  # whatever a user's model raises for more rows than the batch has
            log.debug("dropout: rows cannot be repeated, all passes go through the whole model: %s", error)
            return False
        gap = (again - logits).abs().amax()
        alike = bool(gap <= torch.finfo(logits.dtype).eps ** (2 / 3) * logits.abs().amax())
        if not alike:
            log.debug("dropout: repeated rows differ by %.1e, all passes go through the whole model", gap)
        return alike

    def average(self, run: Callable[[], Any], rows: int) -> tuple[Tensor, Tensor]:
        """The mean softmax and the mean entropy of all passes: sums only, so that memory does not grow with them."""
        mean = mean_entropy = torch.zeros(())
        done = 0
        with self.active():
            while done < self.passes:
                logits = self.forward_repeated(run, rows, self.passes - done if self.repeat_rows else 1)
                probabilities = logits.float().softmax(dim=2)
                mean = mean.to(probabilities) + probabilities.sum(dim=0)
                mean_entropy = mean_entropy.to(probabilities) + entropy(probabilities).sum(dim=0)
                done += len(logits)
        return mean / self.passes, mean_entropy / self.passes

    @contextmanager
    def active(self) -> Iterator[None]:
        for layer in self.layers:
            layer.train()
        try:
            yield
        finally:
            for layer in self.layers:
                layer.eval()

    def forward_repeated(self, run: Callable[[], Any], rows: int, most: int) -> Tensor:
        """Logits (times, rows, c) of one pass, its rows repeated at the first dropout layer at most `most` times."""
        times, reached = 1, False

        def repeat(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
            nonlocal times, reached
            first, reached = not reached, True
            if not first or not isinstance(inputs[0], Tensor) or inputs[0].ndim == 0 or len(inputs[0]) != rows:
                return None
            times = max(1, min(most, self.max_entries // max(1, inputs[0].numel())))
            return inputs[0].repeat(times, *[1] * (inputs[0].ndim - 1)), *inputs[1:]

        handles = [layer.register_forward_pre_hook(repeat) for layer in self.layers]
        try:
            output = run()
        finally:
            for handle in handles:
                handle.remove()
        return self.logits_of(times * rows, output).view(times, rows, -1)
