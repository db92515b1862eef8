"""The logits in what a model returns, and the layer that computed them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer in a forward pass."""

    layer: nn.Module
    input: Any
    output: Any


@dataclass(frozen=True)
class Classifier:
    """The layer whose output is the logits; its input is the embedding."""

    layer: nn.Module
    uses_output: bool
    """Whether the logits are its output, and not what the model returned: a softmax of it, or something else."""


def logits_in(output: Any, rows: int, num_classes: int | None) -> Tensor | None:
    """(rows, c) in what a model returned: a tensor, `.logits`, ["logits"], or the first of several that fits.

    Args:
        num_classes: Where it is known, what fits has that width.
    """
    if isinstance(output, Mapping) and "logits" in output:
        return as_rows(output["logits"], rows)
    if isinstance(getattr(output, "logits", None), Tensor):
        return as_rows(output.logits, rows)
    if isinstance(output, Tensor):
        return as_rows(output, rows)
    if not isinstance(output, (tuple, list, Mapping)):
        return None
    parts = output.values() if isinstance(output, Mapping) else output
    found = [part for value in parts if (part := as_rows(value, rows)) is not None]
    widths = (num_classes, 1) if num_classes == 2 else (num_classes,)
    fitting = [part for part in found if part.shape[1] in widths]
    if num_classes is not None or isinstance(output, Mapping):
        return fitting[0] if fitting else None
    return found[0] if found else None


def as_rows(value: Any, rows: int) -> Tensor | None:
    """A tensor of numbers as (rows, c), without axes of length 1, as in (b, 1, c); None if it has another shape."""
    if not isinstance(value, Tensor) or not value.dtype.is_floating_point or value.ndim == 0 or len(value) != rows:
        return None
    wide = [length for length in value.shape[1:] if length != 1]
    if len(wide) > 1 or value.numel() == 0:
        return None
    return value.reshape(rows, wide[0] if wide else 1)


def pad_binary(logits: Tensor) -> Tensor:
    """One output is a binary classifier, the logit of class 1 against 0: two columns."""
    return nn.functional.pad(logits, (1, 0)) if logits.shape[1] == 1 else logits


def find_classifier(
    calls: Sequence[Call], ran: Sequence[nn.Module], logits: Tensor | None, num_classes: int | None
) -> Classifier | None:
    """The layer that computed the logits in a forward pass; None if no layer did.

    The first whose output is the logits, or whose softmax or sigmoid is. Else the last one of which they are an
    increasing function, as with a temperature. Where the model returns none, or one number, or another number of them
    than there are classes, the last Linear.

    Args:
        ran: All layers in the order they returned; only the last calls of large outputs are kept.
        num_classes: Where it is known.
    """
    linears = [call for call in calls if isinstance(call.layer, nn.Linear)]
    if logits is not None:
        earlier: Sequence[Call] = calls
        target: Tensor | None = logits
        while target is not None and (match := first_match(earlier, target)) is not None:
            if mixes_features(match.layer):
                if not has_layers_before(match.layer, ran):
                    break
                is_activation = target is logits and not same(match, logits) and token_of(match.output, logits) is None
                return Classifier(match.layer, uses_output=is_activation)
            # A layer such as BatchNorm or Identity behind the classifier: which layer computed its input?
            earlier, target = earlier[: earlier.index(match)], as_rows(match.input, len(logits))
        increasing = [call for call in calls if is_increasing(call.output, logits) and mixes_features(call.layer)]
        if increasing and has_layers_before(increasing[-1].layer, ran):
            call = increasing[-1]
            return Classifier(call.layer, uses_output=logits.shape[1] == 1 or are_probabilities(logits))
        if logits.shape[1] not in (1, num_classes):
            linears = [call for call in linears if call.output.shape[-1] == num_classes]
        elif logits.shape[1] == num_classes:
            linears = []
    return Classifier(linears[-1].layer, uses_output=True) if linears else None


def first_match(calls: Iterable[Call], logits: Tensor) -> Call | None:
    for call in calls:
        if same(call, logits) or token_of(call.output, logits) is not None:
            return call
        rows = as_rows(call.output, len(logits))
        if rows is None or rows.shape != logits.shape or not mixes_features(call.layer):
            continue
        if any(close(function(rows), logits) for function in activations(rows.shape[1])):
            return call
    return None


def activations(width: int) -> list[Callable[[Tensor], Tensor]]:
    """What often follows a classifier in `forward` or `predict_step`."""
    if width == 1:
        return [torch.sigmoid]
    return [lambda rows: rows.softmax(dim=1), lambda rows: rows.log_softmax(dim=1), torch.sigmoid]


def same(call: Call, logits: Tensor) -> bool:
    rows = as_rows(call.output, len(logits))
    if rows is None or rows.shape != logits.shape:
        return False
    return rows.data_ptr() == logits.data_ptr() or close(rows, logits)


def close(one: Tensor, other: Tensor) -> bool:
    """Equal up to rounding, also of half precision; NaN is equal to NaN."""
    coarse = torch.finfo(one.dtype).eps > 1e-4 or torch.finfo(other.dtype).eps > 1e-4
    tolerance = 2e-2 if coarse else 1e-5
    if one.dtype != other.dtype:
        one, other = one.float(), other.float()
    scale = float(other.nan_to_num(0, 0, 0).abs().amax())
    return torch.allclose(one, other, rtol=0, atol=tolerance * scale, equal_nan=True)


def token_of(output: Any, logits: Tensor) -> Tensor | None:
    """(rows,): of a classifier that scored each token, (rows, tokens, c), the token whose scores are the logits."""
    if not isinstance(output, Tensor) or output.ndim != 3 or not output.dtype.is_floating_point:
        return None
    if len(output) != len(logits) or output.shape[2] != logits.shape[1] or output.shape[1] < 2:
        return None
    gaps = (output.float() - logits.float()[:, None]).abs().amax(dim=2)  # (rows, tokens)
    tokens = gaps.argmin(dim=1)
    rows = torch.arange(len(logits), device=tokens.device)
    return tokens if close(output[rows, tokens], logits) else None


def is_increasing(output: Any, logits: Tensor) -> bool:
    """Whether a layer's output ranks the classes of each point (of one output, the points) as the logits do."""
    rows = as_rows(output, len(logits))
    if rows is None or rows.shape != logits.shape or rows.numel() < 3:
        return False
    axis = 0 if rows.shape[1] == 1 else 1
    ranked = logits.float().gather(axis, rows.argsort(dim=axis))
    steps = ranked.diff(dim=axis)
    return bool((steps >= 0).all()) and bool((steps > 0).any())


def are_probabilities(rows: Tensor) -> bool:
    rows = rows.float()
    return bool((rows >= 0).all()) and bool(((rows.sum(dim=1) - 1).abs() < 1e-2).all())


def mixes_features(layer: nn.Module) -> bool:
    """Whether a layer has weights for pairs of features, unlike BatchNorm, Softmax or Identity."""
    if isinstance(layer, nn.Linear):  # also where FSDP1 has made its weights flat
        return True
    return any(weight.ndim > 1 for weight in (*layer.parameters(), *layer.buffers()))


def has_layers_before(layer: nn.Module, ran: Sequence[nn.Module]) -> bool:
    """Whether a layer is single, or other layers with weights ran before it: if not, it is a whole network.

    A network of which the classifier is no layer returns the logits too; its input is no embedding.
    """
    inside = set(layer.modules()) - {layer}
    before = [other for other in ran[: ran.index(layer)] if mixes_features(other)]
    return not any(other in inside for other in before) or any(other not in inside for other in before)
