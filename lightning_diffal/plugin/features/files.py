"""Features in the folder of a run, with what they are of."""

import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from lightning_diffal.pool.folder.files import make_folder, write_atomically

NAME: Final = "features.npz"
VERSION: Final = 1


class FeatureFile:
    """The features of one source on one dataset.

    Args:
        source: The name of what computed them.
        dataset: The fingerprint of the dataset.
        candidates: The indices of the points they are of.
    """

    def __init__(self, folder: Path, source: str, dataset: str, candidates: Sequence[int]) -> None:
        self.path = folder / NAME
        points = hashlib.sha256(np.asarray(candidates, np.int64).tobytes()).hexdigest()[:16]
        self.about = json.dumps({"version": VERSION, "features": source, "dataset": dataset, "points": points})

    def read(self) -> Tensor | None:
        """The features, None if the file is not there, is damaged, or holds those of something else."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                if str(file["about"]) != self.about:
                    return None
                return torch.from_numpy(file["features"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def write(self, features: Tensor) -> None:
        make_folder(self.path.parent)

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, about=np.array(self.about), features=features.numpy())

        write_atomically(self.path, write)
