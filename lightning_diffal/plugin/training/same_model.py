"""Whether a model still has the layers that its run was started with."""

from pathlib import Path
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn.parameter import is_lazy

from lightning_diffal.plugin.model.batches import overrides


def check_same_model(model: Any, weights: dict[str, Any], folder: Path) -> None:
    """Refuse a model that was changed since the run was started, before anything is loaded into it."""
    ours = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    changed = [
        f"{name} is {tuple(ours[name].shape)}, where it was {tuple(value.shape)}"
        for name, value in weights.items()
        if name in ours and not is_lazy(ours[name]) and ours[name].shape != value.shape
    ]
    # Layers may be made during the fit, and some models save only a part of themselves.
    whole = not overrides(model, "configure_model") and getattr(model, "strict_loading", True)
    if whole and not changed:
        changed = [f"{name} is new" for name in ours if name not in weights]
        changed += [f"{name} is gone" for name in weights if name not in model.state_dict()]
    if changed:
        more = f" and {len(changed) - 1} more" * (len(changed) > 1)
        raise MisconfigurationException(
            f"The run in {folder} was started with another model: {changed[0]}{more}. Give it the model as it was, or "
            "start a new run with folder=..."
        )


def check_layers(module: Any, names: set[str]) -> None:
    """Refuse a model that training has given other layers, before labels are spent on a round that cannot start.

    Args:
        names: The tensors of the model when training began.
    """
    change = [f"{name} is new" for name in sorted(module.state_dict().keys() - names)]
    change += [f"{name} is gone" for name in sorted(names - module.state_dict().keys())]
    if change:
        raise MisconfigurationException(
            f"Training has changed the layers of the model: {change[0]}. The next round could not start over from the "
            "untrained weights. Make every layer and buffer in __init__ or configure_model. Nothing was asked."
        )
