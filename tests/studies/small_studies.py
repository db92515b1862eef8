"""Studies small enough for tests, and data for them."""

import json
from dataclasses import replace

import numpy as np
import torch
from safetensors.torch import save_file

from lightning_diffal.studies.definitions import STUDIES
from lightning_diffal.studies.networks import vgg16_convolutions
from lightning_diffal.studies.results import Result
from lightning_diffal.studies.run_spec import plan

BOARD = replace(STUDIES["checkerboard"], pool=60, first=2, query_size=4, budget=12, epochs=2, test=20, passes=2)


def write_npz(folder, name, *, n=60, shape=(6,), classes=3, seed=0, **changes):
    """Random points; `changes` replace arrays or, where they are None, leave them out."""
    chance = np.random.default_rng(seed)
    arrays = {}
    for part, count in {"train": n, "test": 20}.items():
        arrays[f"x_{part}"] = chance.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % classes
    arrays |= changes
    np.savez(folder / f"{name}.npz", **{name: array for name, array in arrays.items() if array is not None})
    return arrays


def write_vgg(folder, seed=0):
    """Random weights of VGG-16's convolutions in a safetensors file."""
    torch.manual_seed(seed)
    weights = {f"features.{name}": value for name, value in vgg16_convolutions().state_dict().items()}
    save_file(weights, folder / "vgg16_features.safetensors")
    return weights


def one_run(study, selector, out, data=None, seed=0):
    return plan(study, [selector], [seed], data or out, out)[0]


def without_seconds(path):
    """A result but for what the clock said."""
    content = json.loads(path.read_text())
    for step in content["rounds"]:
        del step["seconds"]
    return content


def read(path):
    return Result.read(path)
