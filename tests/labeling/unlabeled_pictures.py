"""Unlabeled pictures in a folder, a small model of them, and a run that people answer."""

from pathlib import Path

import lightning as L  # noqa: N812, as Lightning's own documentation does
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from lightning_diffal import DiffusionActiveLearning, People

CLASSES = ["dark", "bright", "striped"]


def make_pictures(folder, count=60):
    """Pictures of 6 x 6 in three kinds; the class of each is its number modulo 3."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for index in range(count):
        picture = generator.normal([40, 200, 120][index % 3], 12, (6, 6))
        if index % 3 == 2:
            picture[::2] += 90
        np.save(folder / f"{index:03d}.npy", picture.clip(0, 255).astype(np.uint8))
    return folder


class Pictures(Dataset):
    """No labels at all: an item is a tensor."""

    def __init__(self, folder):
        self.paths = sorted(map(str, Path(folder).glob("*.npy")))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.paths[index])).float()[None] / 255


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU())
        self.head = nn.Linear(12, len(CLASSES))
        self.seen = {}

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.log("train_acc", (self(x).argmax(1) == y).float().mean())
        return cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)


def learner(folder, *, query_size=6, budget=24, initial=6, **options):
    people = People(CLASSES, **options)
    return DiffusionActiveLearning(query_size, budget, initial=initial, oracle=people, folder=folder / "run")


def trainer_for(folder, active, epochs=4):
    return L.Trainer(
        max_epochs=epochs,
        callbacks=[active],
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def fit(folder, *, wait=False, epochs=4, **options):
    active = learner(folder, **options)
    loader = DataLoader(Pictures(folder / "pictures"), batch_size=4, shuffle=True)
    return active.fit(trainer_for(folder, active, epochs), Net(), loader, wait=wait)
