"""Features of VGG-16's frozen convolutions: computed once, cached under a hash of the weights and the data."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lightning_diffal.pool.folder.files import write_atomically
from lightning_diffal.studies.data import IMAGENET_MEAN, IMAGENET_STD, Points, Source, read_arrays, to_float_tensor
from lightning_diffal.studies.networks import check_vgg_shape, vgg16_convolutions

WEIGHTS = "vgg16_features.safetensors"
BATCH = 250


@functools.lru_cache(maxsize=2)
def load_features(name: str, folder: Path) -> Source:
    """A data set with its images replaced by their features, from the cache or computed now, which takes minutes."""
    arrays, data_hash = read_arrays(name, folder)
    check_vgg_shape(tuple(to_float_tensor(arrays["x_train"][:1]).shape[1:]))
    weights = load_weights(folder)
    digest = hashlib.sha256(f"{data_hash} {weights_hash(weights)}".encode()).hexdigest()[:12]
    path = folder / "features" / f"{name}-{digest}.npy"
    if not path.exists():
        save(path, compute(name, [arrays["x_train"], arrays["x_test"]], weights))
    # Memory-mapped: all worker processes share the pages.
    features = torch.from_numpy(np.load(path, mmap_mode="c"))
    train, test = (torch.from_numpy(arrays[part].astype(np.int64)) for part in ("y_train", "y_test"))
    return Source(name, Points(features[: len(train)], train), Points(features[len(train) :], test), digest)


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The convolutions' weights by torchvision's names, from the file in the folder, else from torchvision."""
    path = folder / WEIGHTS
    if path.exists():
        from safetensors import SafetensorError  # noqa: PLC0415, an extra
        from safetensors.torch import load_file  # noqa: PLC0415

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path}: this is not a safetensors file of VGG-16's convolutions ({error}).") from error
    try:
        from torchvision.models import VGG16_Weights  # noqa: PLC0415, an extra

        state = VGG16_Weights.IMAGENET1K_V1.get_state_dict(progress=True)
    except (ImportError, OSError, RuntimeError) as error:
        raise ValueError(
            f"--data {folder}: there is no {WEIGHTS} in it, and torchvision could not download the weights ({error})."
        ) from error
    return {name: tensor for name, tensor in state.items() if name.startswith("features.")}


def weights_hash(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].contiguous().numpy().data)
    return digest.hexdigest()


def build_network(weights: dict[str, Tensor]) -> nn.Sequential:
    """The convolutions with these weights, in eval mode."""
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
    layers = build_network(weights).to(device)
    mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
    batches = [array[start : start + BATCH] for array in images for start in range(0, len(array), BATCH)]
    return torch.cat(
        [
            layers((to_float_tensor(batch).to(device) - mean) / std).flatten(1).cpu()  # gray broadcasts to 3 channels
            for batch in tqdm(batches, desc=f"VGG-16 features of {name}, once", unit="batch", dynamic_ncols=True)
        ]
    )


def save(path: Path, features: Tensor) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # np.save would add .npy to the name
            np.save(file, features.numpy())

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)
