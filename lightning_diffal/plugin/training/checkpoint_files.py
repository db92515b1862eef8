"""Loading the checkpoint files of a run's folder: damage is named, and no code in them is run."""

import pickle
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal.pool.folder.check import archive_problem


class DamagedCheckpointError(RuntimeError):
    """A checkpoint of the run's folder that cannot be loaded."""


def load_checkpoint(path: Path, weights_only: bool) -> Any:
    """The content of a checkpoint; None for a folder, the sharded kind, which torch.distributed.checkpoint reads.

    With `weights_only` nothing in it is run. Lightning loads the file again, older versions without that care: what
    passes here is tensors and plain values.
    """
    if path.is_dir():
        return None
    problem = archive_problem(path)
    if problem is not None:
        raise DamagedCheckpointError(f"{path} {problem}.")
    try:
        return torch.load(path, map_location="cpu", weights_only=weights_only)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise DamagedCheckpointError(
            f"{path} is damaged, or holds other types than tensors and plain values ({first_line(error)})."
        ) from error


def check_types(path: Path) -> None:
    """Refuse a checkpoint just saved that holds more than tensors and plain values."""
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        find = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)
        types = ", ".join(sorted(find(path))) if find is not None else first_line(error)
        raise MisconfigurationException(
            f"The state of the model or of a callback holds other types than tensors and plain values ({types}), which "
            "could only be loaded by running code from the folder of the run. torch.serialization.add_safe_globals "
            "allows a type; weights_only=False allows all, if only people you trust can write to that folder."
        ) from error


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
