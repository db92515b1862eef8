"""Arrays in the folder of a run, with what they are of: features and their graphs."""

import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from lightning_diffal.pool.folder.files import make_folder, write_atomically

VERSION: Final = 1


class FeatureFile:
    """The features of one source on one dataset.

    Args:
        source: The name of what computed them.
        dataset: The fingerprint of the dataset.
        candidates: The indices of the points they are of.
    """

    def __init__(self, folder: Path, source: str, dataset: str, candidates: Sequence[int], name: str) -> None:
        self.path = folder / name
        self.candidates = np.asarray(candidates, np.int64)
        points = hashlib.sha256(self.candidates.tobytes()).hexdigest()[:16]
        self.about = json.dumps({"version": VERSION, "features": source, "dataset": dataset, "points": points})

    def read(self) -> Tensor | None:
        """The features, None if the file is not there, is damaged, or holds those of something else."""
        arrays = read_arrays(self.path, self.about, ("features",))
        return None if arrays is None else torch.from_numpy(arrays[0])

    def write(self, features: Tensor) -> None:
        write_arrays(self.path, self.about, {"features": features.numpy(), "candidates": self.candidates})


def stored_candidates(path: Path) -> list[int] | None:
    """The points that a file has features of; None if it is not there, is damaged, or does not say."""
    try:
        with np.load(path, allow_pickle=False) as file:
            indices: list[int] = file["candidates"].tolist()
            return indices
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def read_arrays(path: Path, about: str, names: Sequence[str]) -> list[Any] | None:
    """Arrays of a file; None if it is not there, is damaged, or is of something else than `about`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return [file[name] for name in names] if str(file["about"]) == about else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def write_arrays(path: Path, about: str, arrays: dict[str, Any]) -> None:
    """Write arrays whole, or not at all. `.npz` has a checksum for each."""
    make_folder(path.parent)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, about=np.array(about), **arrays)

    write_atomically(path, write)
