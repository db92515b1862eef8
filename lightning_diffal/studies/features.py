"""What VGG-16's frozen convolutions make of a data set: computed once, kept under a key of the weights and the data."""

import functools
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lightning_diffal.studies.data import IMAGENET_MEAN, IMAGENET_STD, Points, Source, as_points, find
from lightning_diffal.studies.networks import check_vgg_shape, vgg16_convolutions

WEIGHTS = "vgg16_features.safetensors"
BATCH = 250


@functools.lru_cache(maxsize=2)
def frozen(name: str, folder: Path) -> Source:
    """A data set with its images replaced by their features, from the cache or computed now, which takes minutes."""
    arrays, content = find(name, folder)
    check_vgg_shape(tuple(as_points(arrays["x_train"][:1]).shape[1:]))
    weights = vgg16_weights(folder)
    digest = hashlib.sha256(f"{content} {hash_of(weights)}".encode()).hexdigest()[:12]
    path = folder / "features" / f"{name}-{digest}.npy"
    if not path.exists():
        write(path, compute(name, [arrays["x_train"], arrays["x_test"]], weights))
    # Mapped, not read: the processes of one machine share the pages.
    features = torch.from_numpy(np.load(path, mmap_mode="c"))
    train, test = (torch.from_numpy(arrays[part].astype(np.int64)) for part in ("y_train", "y_test"))
    return Source(name, Points(features[: len(train)], train), Points(features[len(train) :], test), digest)


def vgg16_weights(folder: Path) -> dict[str, Tensor]:
    """The convolutions' weights by torchvision's names, from the file in the folder, else torchvision's own."""
    path = folder / WEIGHTS
    if path.exists():
        return read_safetensors(path)
    try:
        from torchvision.models import VGG16_Weights  # noqa: PLC0415, an extra

        whole = VGG16_Weights.IMAGENET1K_V1.get_state_dict(progress=True)
    except (ImportError, OSError, RuntimeError) as error:
        raise ValueError(
            f"--data {folder}: there is no {WEIGHTS} in it, and torchvision could not download the weights ({error})."
        ) from error
    return {name: tensor for name, tensor in whole.items() if name.startswith("features.")}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file: the length of a JSON header, the header, then one buffer after another."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    try:
        header: dict[str, Any] = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        if any(entry["dtype"] != "F32" for entry in header.values()):
            raise ValueError("its tensors are not float32")
        buffers = {name: content[8 + length :][slice(*entry["data_offsets"])] for name, entry in header.items()}
        return {
            name: torch.frombuffer(bytearray(buffers[name]), dtype=torch.float32).reshape(entry["shape"])
            for name, entry in header.items()
        }
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: this is not a safetensors file of VGG-16's convolutions ({error}).") from error


def hash_of(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].contiguous().numpy().data)
    return digest.hexdigest()


def with_weights(weights: dict[str, Tensor]) -> nn.Sequential:
    """The convolutions, ready to be used and not to be trained."""
    layers = vgg16_convolutions()
    try:
        layers.load_state_dict({name.removeprefix("features."): tensor for name, tensor in weights.items()})
    except RuntimeError as error:
        raise ValueError(f"{WEIGHTS}: these are not the weights of VGG-16's convolutions ({error}).") from error
    return layers.eval()


@torch.no_grad()
def compute(name: str, images: Sequence[Any], weights: dict[str, Tensor]) -> Tensor:
    """(images of all arrays, features), in float32."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = with_weights(weights).to(device)
    mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
    batches = [array[start : start + BATCH] for array in images for start in range(0, len(array), BATCH)]
    return torch.cat(
        [
            layers((as_points(batch).to(device) - mean) / std).flatten(1).cpu()  # one channel broadcasts to three
            for batch in tqdm(batches, desc=f"VGG-16 features of {name}, once", unit="batch", dynamic_ncols=True)
        ]
    )


def write(path: Path, features: Tensor) -> None:
    """The file is there whole, or it is not there."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            np.save(file, features.numpy())
    except OSError as error:
        raise ValueError(f"--data {path.parent.parent}: features could not be kept there ({error}).") from error
    draft.replace(path)
