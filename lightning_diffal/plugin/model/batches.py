"""How a batch is passed to the model."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.pool.items import LABEL_KEYS, describe

# What a user may pass as `forward`: (module, batch) -> anything.
Forward = Callable[[Any, Any], Any]


def model_runner(module: Any, forward: Forward | None) -> Callable[[Any, int], Any]:
    """A function that passes a batch to the model: the user's, `predict_step` if it is overridden, else `forward`.

    Signatures are inspected once, not for every batch.
    """
    if forward is not None:
        return lambda batch, batch_idx: forward(module, batch)
    if overrides(module, "predict_step"):
        if len(inspect.signature(module.predict_step).parameters) > 1:
            return module.predict_step  # type: ignore[no-any-return]
        return lambda batch, batch_idx: module.predict_step(batch)
    parameters = inspect.signature(module.forward).parameters.values()
    takes = [p.name for p in parameters]
    needs = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

    def run(batch: Any, batch_idx: int) -> Any:
        arguments, keywords = inputs_of(batch, takes, needs)
        return module(*arguments, **keywords)

    return run


def overrides(instance: Any, name: str) -> bool:
    """Whether the user has written this method, and not one of Lightning's two namespaces."""
    owner = next((cls for cls in type(instance).__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__module__.split(".")[0] not in ("lightning", "pytorch_lightning")


def inputs_of(batch: Any, takes: list[str], needs: list[str]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of `forward` in a batch, labels left out.

    A tensor is the input itself. Of a tuple or list, as many from the front as `forward` needs, and at least one.
    Of a dictionary, the entries `forward` takes by name, or the only one that is no label.
    """
    if isinstance(batch, Tensor):
        return (batch,), {}
    if isinstance(batch, (tuple, list)) and len(batch) >= max(1, len(needs)):
        return batch[: max(1, len(needs))], {}
    if isinstance(batch, Mapping):
        inputs = {name: value for name, value in batch.items() if name not in LABEL_KEYS}
        by_name = {name: inputs[name] for name in takes if name in inputs}
        if by_name and all(name in by_name for name in needs):
            return (), by_name
        if len(inputs) == 1 and len(needs) <= 1:
            return tuple(inputs.values()), {}
    raise MisconfigurationException(
        f"A batch is {describe(batch)} and the model's forward takes ({', '.join(needs)}): it is not clear what goes "
        "where. Pass forward=lambda module, batch: module(...), or override predict_step."
    )
