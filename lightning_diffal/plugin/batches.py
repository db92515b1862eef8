"""What of a batch goes into the model."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.pool.items import LABEL_KEYS, described

# What a user may pass as `forward`: (module, batch) -> anything.
Forward = Callable[[Any, Any], Any]


def run_model(module: Any, batch: Any, batch_idx: int, forward: Forward | None) -> Any:
    """One pass of a batch: by the user's function, by `predict_step` if it is overridden, else by `forward`."""
    if forward is not None:
        return forward(module, batch)
    if overrides(module, "predict_step"):
        takes_index = len(inspect.signature(module.predict_step).parameters) > 1
        return module.predict_step(batch, batch_idx) if takes_index else module.predict_step(batch)
    arguments, keywords = inputs_of(batch, module.forward)
    return module(*arguments, **keywords)


def overrides(instance: Any, name: str) -> bool:
    """Whether the user has written this method, and not one of Lightning's two namespaces."""
    owner = next((cls for cls in type(instance).__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__module__.split(".")[0] not in ("lightning", "pytorch_lightning")


def inputs_of(batch: Any, forward: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of `forward` in a batch, labels left out.

    A tensor is the input itself. Of a tuple or list, as many from the front as `forward` asks for, and at least one.
    Of a dictionary, the entries `forward` names, or the only one that is no label.
    """
    parameters = [p for p in inspect.signature(forward).parameters.values() if p.kind is not p.VAR_KEYWORD]
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if isinstance(batch, Mapping):
        inputs = {name: value for name, value in batch.items() if name not in LABEL_KEYS}
        by_name = {p.name: inputs[p.name] for p in parameters if p.name in inputs}
        if by_name and all(p.name in by_name for p in needed):
            return [], by_name
        if len(inputs) == 1 and len(needed) <= 1:
            return list(inputs.values()), {}
        wanted = ", ".join(p.name for p in needed)
        raise MisconfigurationException(
            f"A batch is {described(batch)} and the model's forward takes ({wanted}): it is not clear what goes where. "
            "Pass forward=lambda module, batch: module(batch[...]), or override predict_step."
        )
    if isinstance(batch, (tuple, list)) and len(batch) > 0:
        count = max(1, len(needed))
        if count > len(batch):
            raise MisconfigurationException(
                f"A batch is {described(batch)} and the model's forward takes {count} arguments. "
                "Pass forward=lambda module, batch: module(...), or override predict_step."
            )
        return list(batch[:count]), {}
    if isinstance(batch, Tensor):
        return [batch], {}
    raise MisconfigurationException(
        f"A batch is {described(batch)}. Pass forward=lambda module, batch: module(...) to say what the model takes."
    )
