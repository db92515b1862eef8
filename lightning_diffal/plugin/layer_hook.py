"""Forward hooks that catch the embedding and the logits as they pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_diffal.pool.items import described


class Tap:
    """What one layer let through in the last forward pass.

    With a `layer`, its output is the embedding. Without one, the classifier is the last Linear that ran, and its input,
    the penultimate representation, is the embedding. The classifier's output is the logits in both cases.
    """

    def __init__(self, module: nn.Module, layer: str | None) -> None:
        self.layer, self.names = layer, {child: name for name, child in module.named_modules()}
        self.named = find_layer(module, layer) if layer is not None else None
        self.linears = [child for child in module.modules() if isinstance(child, nn.Linear)]
        self.handles: dict[nn.Module, RemovableHandle] = {}
        self.clear()

    def clear(self) -> None:
        self.output: Any = None
        self.fired = False
        self.classifier: tuple[nn.Module, Any, Any] | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        self.handles = {linear: linear.register_forward_hook(self.at_linear) for linear in self.linears}
        named = self.named.register_forward_hook(self.at_named) if self.named is not None else None
        try:
            yield
        finally:
            self.keep_only(None)
            if named is not None:
                named.remove()
            self.clear()

    def keep_only(self, linear: nn.Module | None) -> None:
        """Take the hooks off all Linear layers but one: each costs time in every batch, and the classifier is found."""
        for other in [hooked for hooked in self.handles if hooked is not linear]:
            self.handles.pop(other).remove()

    def at_linear(self, linear: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.classifier = (linear, inputs[0] if inputs else None, output)

    def at_named(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self.output, self.fired = output, True

    def embedding(self, rows: int) -> Tensor:
        """(rows, d): what the layer gave for a batch of so many points, flattened."""
        if self.layer is not None:
            if not self.fired:
                raise MisconfigurationException(
                    f"layer={self.layer!r}: it did not run in the forward pass, so there is no embedding to take. "
                    "Name a layer that every forward pass goes through."
                )
            return rows_of(self.output, rows, f"layer={self.layer!r}")
        if self.classifier is None:
            raise MisconfigurationException(
                "layer=None: no Linear layer ran in the forward pass, so the classifier could not be found. Name the "
                f"layer whose output is the embedding, as layer={next(reversed(self.names.values()), '')!r}."
            )
        return rows_of(self.classifier[1], rows, f"layer=None: the classifier {self.name_of_classifier()!r}")

    def logits(self, rows: int, output: Any) -> Tensor | None:
        """(rows, c): what the classifier said, or what the model returned if no Linear ran; None if neither fits."""
        source = self.classifier[2] if self.classifier is not None else output
        if not isinstance(source, Tensor) or source.ndim != 2 or len(source) != rows:
            return None
        # One output is a binary classifier: the logit of class 1 against 0.
        return nn.functional.pad(source, (1, 0)) if source.shape[1] == 1 else source

    def name_of_classifier(self) -> str:
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


def rows_of(value: Any, rows: int, where: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise MisconfigurationException(
            f"{where} gave {described(value)}, a tensor is needed. Name another layer, or one inside it."
        )
    if value.ndim == 0 or len(value) != rows:
        raise MisconfigurationException(
            f"{where} gave {described(value)} for a batch of {rows} points. One row for each point is needed: "
            "name a layer with layer=..."
        )
    return value.flatten(start_dim=1) if value.ndim > 1 else value[:, None]
