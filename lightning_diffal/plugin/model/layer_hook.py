"""Forward hooks that record the embedding and the logits of a batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_diffal.pool.items import describe


class LayerHook:
    """Records the embedding and the logits of the last forward pass.

    With a `layer`, its output is the embedding. Without one, the classifier is the last Linear that ran, and its input,
    the penultimate representation, is the embedding. The classifier's output is the logits in both cases.
    """

    def __init__(self, module: nn.Module, layer: str | None) -> None:
        self.layer, self.names = layer, {child: name for name, child in module.named_modules()}
        self.layer_module = find_layer(module, layer) if layer is not None else None
        self.linears = [child for child in module.modules() if isinstance(child, nn.Linear)]
        self.handles: dict[nn.Module, RemovableHandle] = {}
        self.clear()

    def clear(self) -> None:
        self.output: Any = None
        self.fired = False
        self.classifier: tuple[nn.Module, Any, Any] | None = None

    @contextmanager
    def attach(self) -> Iterator[None]:
        self.handles = {linear: linear.register_forward_hook(self.on_linear) for linear in self.linears}
        handle = self.layer_module.register_forward_hook(self.on_layer) if self.layer_module is not None else None
        try:
            yield
        finally:
            self.keep_only(None)
            if handle is not None:
                handle.remove()
            self.clear()

    def keep_only(self, linear: nn.Module | None) -> None:
        """Remove the hooks of all Linear layers but one, since each costs time in every batch."""
        for other in [hooked for hooked in self.handles if hooked is not linear]:
            self.handles.pop(other).remove()

    def on_linear(self, linear: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.classifier = (linear, inputs[0] if inputs else None, output)

    def on_layer(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self.output, self.fired = output, True

    def embedding(self, rows: int) -> Tensor:
        """(rows, d): the output of the layer for a batch of `rows` points, flattened."""
        if self.layer is not None:
            if not self.fired:
                raise MisconfigurationException(
                    f"layer={self.layer!r}: it did not run in the forward pass, so there is no embedding to take. "
                    "Name a layer that every forward pass goes through."
                )
            return to_rows(self.output, rows, f"layer={self.layer!r}")
        if self.classifier is None:
            raise MisconfigurationException(
                "layer=None: no Linear layer ran in the forward pass, so the classifier could not be found. Name the "
                f"layer whose output is the embedding, as layer={next(reversed(self.names.values()), '')!r}."
            )
        return to_rows(self.classifier[1], rows, f"layer=None: the classifier {self.classifier_name()!r}")

    def logits(self, rows: int, output: Any) -> Tensor | None:
        """(rows, c): output of the classifier, or of the model if no Linear ran; None if it has another shape."""
        source = self.classifier[2] if self.classifier is not None else output
        if not isinstance(source, Tensor) or source.ndim != 2 or len(source) != rows:
            return None
        # One output is a binary classifier: the logit of class 1 against 0.
        return nn.functional.pad(source, (1, 0)) if source.shape[1] == 1 else source

    def classifier_name(self) -> str:
        return self.names[self.classifier[0]] if self.classifier is not None else ""


def find_layer(module: nn.Module, layer: str) -> nn.Module:
    """A submodule by its dotted name, also inside ones that `torch.compile` or FSDP1 has wrapped."""
    found = module
    for part in layer.split("."):
        inner = dict(found.named_children())
        for wrapped in ("_orig_mod", "_fsdp_wrapped_module"):
            if part not in inner and wrapped in inner:
                inner = dict(inner[wrapped].named_children())
        if part not in inner:
            raise MisconfigurationException(
                f"layer={layer!r}: the model has no such submodule. "
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
            f"{where} gave {describe(value)} for a batch of {rows} points. One row for each point is needed: "
            "name a layer with layer=..."
        )
    return value.flatten(start_dim=1) if value.ndim > 1 else value[:, None]
