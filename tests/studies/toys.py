"""Studies small enough for tests, and data for them."""

import json
from dataclasses import replace

import numpy as np
import torch

from lightning_diffal.studies.networks import vgg16_convolutions
from lightning_diffal.studies.results import Result
from lightning_diffal.studies.runs import plan
from lightning_diffal.studies.studies import STUDIES

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
    """Random weights of VGG-16's convolutions in a safetensors file, byte by byte as its format says."""
    torch.manual_seed(seed)
    weights = {f"features.{name}": value for name, value in vgg16_convolutions().state_dict().items()}
    header, buffers, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, value in weights.items():
        buffers.append(value.numpy().tobytes())
        start, end = end, end + len(buffers[-1])
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    path = folder / "vgg16_features.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(buffers))
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
