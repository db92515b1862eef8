"""The data of the studies: NAME.npz in a folder, torchvision's downloads, scikit-learn's digits, a checkerboard."""

import functools
import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from lightning_diffal.pool.randomness import seed_of

PARTS = ("x_train", "y_train", "x_test", "y_test")
# Data sets that torchvision can download.
DOWNLOADS = {"mnist": "MNIST", "fashion": "FashionMNIST", "cifar10": "CIFAR10", "svhn": "SVHN"}
# The normalization VGG-16 was trained with, for pixels from 0 to 1.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DIGITS_TEST = 500
# The side of a square of the checkerboard, which is centered at 0. The paper gives no coordinates. With 128
# random labels its training (SGD, lr .001, batch 1) comes to .54 on squares of side 1/4, .68 at 1, .71 at 2, .69 at 3.
SIDE = 2.0


class Points(Dataset[Any]):
    """Points and their classes as two tensors, read a batch at a time."""

    def __init__(self, x: Tensor, targets: Tensor) -> None:
        self.x, self.targets = x, targets

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.targets[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        # Stacking single points would take longer than the paper's small networks take to train on them.
        return self.x[indices], self.targets[indices]


def keep_batch(batch: Any) -> Any:
    """The collate function for `Points`, which returns whole batches; views that add points to them return lists."""
    return tuple(default_collate(batch)) if isinstance(batch, list) else batch


@dataclass(frozen=True, eq=False)
class Source:
    """A whole data set, before a pool is drawn from it."""

    name: str
    train: Points
    test: Points
    digest: str
    """A short hash of the content, part of a result's settings."""

    @property
    def num_classes(self) -> int:
        return int(self.train.targets.max()) + 1


@functools.lru_cache(maxsize=2)
def load(name: str, folder: Path) -> Source:
    """A data set as tensors; integer pixels are scaled to [0, 1]."""
    arrays, digest = read_arrays(name, folder)
    train, test = (
        Points(to_float_tensor(arrays[f"x_{part}"]), torch.from_numpy(arrays[f"y_{part}"].astype(np.int64)))
        for part in ("train", "test")
    )
    return Source(name, train, test, digest)


def read_arrays(name: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The arrays of NAME.npz in the folder, else of torchvision's download or scikit-learn, and their hash."""
    path = folder / f"{name}.npz"
    if path.exists():
        arrays = read_npz(path)
    elif name in DOWNLOADS:
        arrays = download(name, folder)
    elif name == "digits":
        arrays = sklearn_digits()
    else:
        available = ", ".join(sorted(file.stem for file in folder.glob("*.npz"))) or "no .npz file"
        raise ValueError(
            f"--dataset {name}: there is no {path}. In --data {folder} there is {available}; "
            f"torchvision downloads {', '.join(DOWNLOADS)}."
        )
    check_arrays(path, arrays)
    digest = hashlib.sha256()
    for part in PARTS:
        digest.update(f"{part} {arrays[part].dtype} {arrays[part].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[part]).data)
    return arrays, digest.hexdigest()[:12]


def read_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [part for part in PARTS if part not in file.files]
            if missing:
                raise ValueError(f"it holds {', '.join(file.files) or 'nothing'} and no {missing[0]}")
            return {part: file[part] for part in PARTS}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: {error}. An .npz file with {', '.join(PARTS)} is needed.") from error


def check_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that cannot be trained on."""
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.ndim not in (2, 3, 4) or x.dtype.kind not in "uif" or len(x) == 0:
            raise ValueError(
                f"{path}: x_{part} is {x.dtype} of shape {x.shape}. Numbers of shape (n, d), (n, height, width) or "
                "(n, height, width, 3) are needed."
            )
        if x.shape[1:] != arrays["x_train"].shape[1:]:
            raise ValueError(f"{path}: points of x_test are {x.shape[1:]}, of x_train {arrays['x_train'].shape[1:]}.")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(f"{path}: x_{part} holds NaN or infinity.")
        if y.shape != (len(x),) or y.dtype.kind not in "ui" or int(y.min()) < 0:
            raise ValueError(
                f"{path}: y_{part} is {y.dtype} of shape {y.shape}. The {len(x)} points of x_{part} need one class "
                "each, a whole number from 0."
            )
    classes, unseen = int(arrays["y_train"].max()) + 1, int(arrays["y_test"].max())
    if classes < 2 or unseen >= classes:
        raise ValueError(f"{path}: y_train has {classes} classes, and the largest of y_test is {unseen}.")


def to_float_tensor(x: Any) -> Tensor:
    """(n, d), (n, 1, h, w) or (n, 3, h, w) in float32; integers are divided by 255."""
    points = torch.from_numpy(np.ascontiguousarray(x)).float()
    if x.dtype.kind in "ui":
        points /= 255
    if points.ndim == 3:
        return points[:, None]
    if points.ndim == 4 and points.shape[3] in (1, 3):
        return points.permute(0, 3, 1, 2).contiguous()
    return points


def sklearn_digits() -> dict[str, Any]:
    """The 1,797 digits of 8 × 8 pixels that come with scikit-learn, split once at random: 500 are the test set."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415, an extra
    except ImportError as error:
        raise ValueError(
            "digits: scikit-learn is needed, and `pip install lightning-diffal[experiments]` installs it."
        ) from error
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    train, test = slice(DIGITS_TEST, None), slice(DIGITS_TEST)
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


def download(name: str, folder: Path) -> dict[str, Any]:
    """The same arrays from torchvision, which downloads to the folder."""
    arrays = {}
    for part in ("train", "test"):
        which = {"split": part} if name == "svhn" else {"train": part == "train"}
        try:
            import torchvision  # noqa: PLC0415, an extra

            dataset = getattr(torchvision.datasets, DOWNLOADS[name])(folder, download=True, **which)
        except (ImportError, OSError, RuntimeError) as error:
            raise ValueError(
                f"--dataset {name}: there is no {folder / name}.npz, and torchvision could not download it ({error})."
            ) from error
        x = np.asarray(dataset.data)
        arrays[f"x_{part}"] = x.transpose(0, 2, 3, 1) if name == "svhn" else x
        arrays[f"y_{part}"] = np.asarray(dataset.labels if name == "svhn" else dataset.targets)
    return arrays


def draw_pool(source: Source, size: int, seed: int, imbalance: int | None = None) -> Points:
    """`size` points drawn by seed, of each class as many as `class_sizes` says.

    Without an imbalance, the training set as it is if it has `size` points.
    """
    targets, classes = source.train.targets, source.num_classes
    if size > len(targets):
        raise ValueError(
            f"--pool {size}: {source.name} has {len(targets)} training points. --pool {len(targets)} does."
        )
    if size == len(targets) and imbalance is None:
        return source.train
    generator = torch.Generator().manual_seed(seed_of(seed, 0))
    shuffled = torch.randperm(len(targets), generator=generator)
    chosen = []
    for label, quota in enumerate(class_sizes(size, classes, imbalance)):
        members = shuffled[targets[shuffled] == label]
        if len(members) < quota:
            kind, remedy = "balanced", f"--pool {len(targets)} takes all points, balanced or not."
            if imbalance is not None:
                kind, remedy = "long-tailed", "Choose a smaller one."
            raise ValueError(
                f"--pool {size}: a {kind} pool needs {quota} points of class {label}, and {source.name} has "
                f"{len(members)}. {remedy}"
            )
        chosen.append(members[:quota])
    order = torch.cat(chosen)
    order = order[torch.randperm(size, generator=generator)]
    return Points(source.train.x[order], targets[order])


def class_sizes(size: int, classes: int, imbalance: int | None) -> list[int]:
    """The points of each class, `size` in all: equally many, or falling geometrically to 1/imbalance of the first."""
    if imbalance is None:
        return [size // classes + (label < size % classes) for label in range(classes)]
    shares = imbalance ** -torch.linspace(0, 1, classes, dtype=torch.float64)
    ends = (shares.cumsum(0) * (size / shares.sum())).round().long()
    return ends.diff(prepend=ends.new_zeros(1)).tolist()


def checkerboard(size: int, squares: int, seed: int) -> Points:
    """Points uniform over a board of squares × squares, whose colors are the two classes."""
    places = squares * torch.rand(size, 2, generator=torch.Generator().manual_seed(seed))
    colors = places.long().clamp(max=squares - 1).sum(dim=1) % 2
    return Points(SIDE * (places - squares / 2), colors)


def board_coordinates(x: Tensor, squares: int) -> Tensor:
    """Points in coordinates of the whole board, from (0, 0) to (1, 1)."""
    return x / (SIDE * squares) + 0.5
