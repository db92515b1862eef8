"""A model that has changed since its run began."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor


def load_weights(checkpoint: Path) -> dict[str, Tensor]:
    # Our own file, and users' hyperparameters may be of any type.
    return torch.load(checkpoint, map_location="cpu", weights_only=False)["state_dict"]  # type: ignore[no-any-return]


@contextmanager
def explain_other_weights(model: Any, checkpoint: Path | None) -> Iterator[None]:
    """Say which layers have changed where torch says only that shapes or names do not match."""
    try:
        yield
    except RuntimeError as error:
        if checkpoint is None or "in loading state_dict" not in str(error) or checkpoint.is_dir():
            raise
        ours = {name: tuple(value.shape) for name, value in getattr(model, "_orig_mod", model).state_dict().items()}
        theirs = {name: tuple(value.shape) for name, value in load_weights(checkpoint).items()}
        changed = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
        listed = "; ".join(
            f"{name} was {theirs.get(name, 'not there')} and is {ours.get(name, 'not there')}" for name in changed[:3]
        )
        raise MisconfigurationException(
            f"The weights of this run, {checkpoint}, do not fit the model: {listed}"
            f"{f'; and {len(changed) - 3} more' if len(changed) > 3 else ''}. Every round starts from the model the "
            "run began with: continue with that one, or start a new run with another folder=..."
        ) from error
