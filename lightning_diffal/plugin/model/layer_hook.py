"""Forward hooks that record the embedding and the logits of a batch."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_diffal.plugin.model.logits import (
    Call,
    Classifier,
    as_rows,
    find_classifier,
    logits_in,
    pad_binary,
    same,
    token_of,
)
from lightning_diffal.pool.dataset.classes import describe

# Calls with outputs of more than two axes that are kept: images and sequences are large, and classifiers run last.
LARGE_CALLS = 4


class LayerHook:
    """Records the embedding and the logits of the last forward pass.

    What the model returns as logits comes first. The layer that computed them is the classifier; with a `layer`, its
    output is the embedding, without one the input of the classifier, the penultimate representation.

    Args:
        num_classes: Where it is known, which of several tensors that a model returns are the logits.
    """

    def __init__(self, module: nn.Module, layer: str | None, num_classes: int | None = None) -> None:
        self.layer, self.num_classes = layer, num_classes
        self.names = {child: name for name, child in module.named_modules() if child is not module}
        self.layer_module = find_layer(module, layer) if layer is not None else None
        self.handles: dict[nn.Module, RemovableHandle] = {}
        self.searched, self.suggestion = False, ""
        self.classifier: Classifier | None = None
        self.clear()

    def clear(self) -> None:
        self.output: Any = None
        self.fired = False
        self.calls: list[Call] = []
        self.large: deque[Call] = deque(maxlen=LARGE_CALLS)
        self.ran: list[nn.Module] = []

    @contextmanager
    def attach(self) -> Iterator[None]:
        self.handles = {child: child.register_forward_hook(self.on_call, with_kwargs=True) for child in self.names}
        handle = self.layer_module.register_forward_hook(self.on_layer) if self.layer_module is not None else None
        try:
            yield
        finally:
            self.keep_only(None)
            if handle is not None:
                handle.remove()
            self.clear()

    def keep_only(self, layer: nn.Module | None) -> None:
        """Remove the hooks of all layers but one, since each costs time in every batch."""
        for other in [hooked for hooked in self.handles if hooked is not layer]:
            self.handles.pop(other).remove()

    def on_call(self, layer: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        self.ran.append(layer)
        if isinstance(output, Tensor):
            given = next((value for value in (*inputs, *keywords.values()) if isinstance(value, Tensor)), None)
            call = Call(layer, given, output)
            self.calls.append(call)
            if output.ndim > 2 and as_rows(output, len(output)) is None:
                if len(self.large) == LARGE_CALLS:
                    self.calls.remove(self.large[0])
                self.large.append(call)

    def on_layer(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self.output, self.fired = output, True

    def search(self, rows: int, output: Any) -> None:
        """Find the classifier in the first forward pass; later ones record that layer alone."""
        if not self.searched:
            logits = logits_in(output, rows, self.num_classes)
            self.classifier = find_classifier(self.calls, self.ran, logits, self.num_classes)
            self.suggestion = self.suggested_layer(rows)
            self.searched = True
            self.keep_only(None if self.classifier is None else self.classifier.layer)

    def logits(self, rows: int, output: Any) -> Tensor | None:
        """(rows, c): what the model returned, or the output of the classifier; None if it has another shape."""
        self.search(rows, output)
        logits = logits_in(output, rows, self.num_classes)
        if self.classifier is not None and (logits is None or self.classifier.uses_output):
            call = self.classifier_call(rows, output)
            logits = None if call is None else as_rows(call.output, rows)
        return None if logits is None else pad_binary(logits)

    def embedding(self, rows: int, output: Any) -> Tensor:
        """(rows, d): the output of the layer, or the input of the classifier, for a batch of `rows` points."""
        if self.layer is not None:
            if not self.fired:
                raise MisconfigurationException(
                    f"layer={self.layer!r}: it did not run in the forward pass, so there is no embedding to take. "
                    "Name a layer that every forward pass goes through."
                )
            return to_rows(self.output, rows, f"layer={self.layer!r}")
        self.search(rows, output)
        call = self.classifier_call(rows, output)
        if self.classifier is None or call is None:
            raise MisconfigurationException(
                f"layer=None: no layer computed the logits that the model returned, {describe(output)}, so the input "
                f"of the classifier is not known. Name the layer whose output is the embedding, as "
                f"layer={self.suggestion!r}, or give embedding=lambda module, batch: ..., one row for each point."
            )
        where = f"layer=None: the classifier {self.names[self.classifier.layer]!r}"
        tokens = (
            None if (logits := logits_in(output, rows, self.num_classes)) is None else token_of(call.output, logits)
        )
        if tokens is not None and isinstance(call.input, Tensor):
            return call.input[torch.arange(rows, device=tokens.device), tokens]
        if isinstance(call.input, Tensor) and call.input.ndim > 2 and as_rows(call.input, rows) is None:
            raise MisconfigurationException(
                f"{where} takes {describe(call.input)} for a batch of {rows} points: more than one row for a point, as "
                "for each token. One is needed: layer=... names a layer behind the pooling, or "
                "embedding=lambda module, batch: ... gives one."
            )
        return to_rows(call.input, rows, where)

    def classifier_call(self, rows: int, output: Any) -> Call | None:
        """The call of the classifier that computed the logits, where it ran several times; else the last."""
        calls = [call for call in self.calls if self.classifier is not None and call.layer is self.classifier.layer]
        logits = logits_in(output, rows, self.num_classes) if len(calls) > 1 else None
        matching = [call for call in calls if logits is not None and same(call, logits)]
        return matching[0] if matching else calls[-1] if calls else None

    def suggested_layer(self, rows: int) -> str:
        """The last layer that gave a row for each point, else the last one."""
        fitting = [call.layer for call in self.calls if as_rows(call.output, rows) is not None]
        return self.names[(fitting or self.ran)[-1]] if self.ran else next(reversed(self.names.values()), "")


def find_layer(module: nn.Module, layer: str, argument: str = "layer") -> nn.Module:
    """A submodule by its dotted name, also inside ones that `torch.compile` or FSDP1 has wrapped."""
    found = module
    for part in layer.split("."):
        inner = dict(found.named_children())
        for wrapped in ("_orig_mod", "_fsdp_wrapped_module"):
            if part not in inner and wrapped in inner:
                inner = dict(inner[wrapped].named_children())
        if part not in inner:
            raise MisconfigurationException(
                f"{argument}={layer!r}: the model has no such submodule. "
                + (f"The children of {type(found).__name__} are {', '.join(inner)}." if inner else "It has none.")
            )
        found = inner[part]
    return found


def to_rows(value: Any, rows: int, where: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise MisconfigurationException(
            f"{where} gave {describe(value)}, a tensor is needed. Name another layer, or one inside it."
        )
    if value.ndim == 0 or len(value) != rows:
        raise MisconfigurationException(
            f"{where} gave {describe(value)} for a batch of {rows} points. One row for each point is needed, "
            f"({rows}, ...): layer=... names another layer, embedding=lambda module, batch: ... gives the rows."
        )
    return value.flatten(start_dim=1) if value.ndim > 1 else value[:, None]
