"""How a batch is passed to the model."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.pool.dataset.classes import describe
from lightning_diffal.pool.dataset.items import LABEL_KEYS, is_object

# What a user may pass as `forward`: (module, batch) -> anything.
Forward = Callable[[Any, Any], Any]

# Of a call: positional ones and keywords.
Arguments: TypeAlias = tuple[Sequence[Any], dict[str, Any]]


def model_runner(module: Any, forward: Forward | None, label: Any = None) -> Callable[[Any, int], Any]:
    """A function that passes a batch to the model: the user's, `predict_step` if it is overridden, else `forward`.

    Signatures are inspected once, not for every batch.
    """
    if forward is not None:
        return lambda batch, batch_idx: forward(module, batch)
    if overrides(module, "predict_step"):
        if len(inspect.signature(module.predict_step).parameters) > 1:
            return module.predict_step  # type: ignore[no-any-return]
        return lambda batch, batch_idx: module.predict_step(batch)
    signature = Signature.of(module.forward, (label,) if isinstance(label, str) else LABEL_KEYS)

    def run(batch: Any, batch_idx: int) -> Any:
        arguments, keywords = inputs_of(batch, signature)
        return module(*arguments, **keywords)

    return run


@dataclass(frozen=True)
class Signature:
    """What `forward` takes."""

    takes: tuple[str, ...]
    needs: tuple[str, ...]
    """Those without a default."""
    takes_any: bool
    """Whether it takes **keywords."""
    label_keys: tuple[str, ...]

    @staticmethod
    def of(forward: Callable[..., Any], label_keys: tuple[str, ...]) -> "Signature":
        parameters = inspect.signature(forward).parameters.values()
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return Signature(
            takes=tuple(p.name for p in named),
            needs=tuple(p.name for p in named if p.default is p.empty),
            takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
            label_keys=label_keys,
        )


def overrides(instance: Any, name: str) -> bool:
    """Whether the user has written this method, and not one of Lightning's two namespaces."""
    inner = getattr(instance, "_orig_mod", instance)  # of torch.compile
    owner = next((cls for cls in type(inner).__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__module__.split(".")[0] not in ("lightning", "pytorch_lightning")


def inputs_of(batch: Any, signature: Signature) -> Arguments:
    """The arguments of `forward` in a batch, labels left out.

    A tensor is the input itself. `forward(self, batch)` gets the batch. Of a tuple or list, as many from the front as
    `forward` needs, and at least one. Of a dictionary, the entries `forward` takes by name (all but the label if it
    takes **keywords), or the only one that is no label. Of an object, the attributes it takes by name, or itself.
    """
    needs, found = signature.needs, None
    if isinstance(batch, Tensor) or (needs == ("batch",) and not (isinstance(batch, Mapping) and "batch" in batch)):
        return (batch,), {}
    if isinstance(batch, (tuple, list)) and len(batch) >= max(1, len(needs)):
        return batch[: max(1, len(needs))], {}
    if isinstance(batch, Mapping):
        found = inputs_of_mapping(batch, signature)
    elif is_object(batch):
        found = inputs_of_object(batch, signature)
    if found is not None:
        return found
    raise MisconfigurationException(
        f"A batch is {describe(batch)} and the model's forward takes ({', '.join(needs)}): it is not clear what goes "
        "where. Pass forward=lambda module, batch: module(...), or override predict_step."
    )


def inputs_of_mapping(batch: Mapping[Any, Any], signature: Signature) -> Arguments | None:
    inputs = {name: value for name, value in batch.items() if name not in signature.label_keys}
    by_name = {name: inputs[name] for name in signature.takes if name in inputs}
    if signature.takes_any and all(name in inputs for name in signature.needs):
        return (), inputs
    if by_name and all(name in by_name for name in signature.needs):
        return (), by_name
    return (tuple(inputs.values()), {}) if len(inputs) == 1 and len(signature.needs) <= 1 else None


def inputs_of_object(batch: Any, signature: Signature) -> Arguments | None:
    names = [name for name in signature.takes if name not in signature.label_keys]
    by_name = {name: getattr(batch, name) for name in names if getattr(batch, name, None) is not None}
    if by_name and all(name in by_name for name in signature.needs) and signature.needs != ("data",):
        return (), by_name
    return ((batch,), {}) if len(signature.needs) <= 1 else None
