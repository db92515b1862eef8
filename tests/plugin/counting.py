"""Datasets that note what training draws from them, to check against the ledger."""

import json

import lightning as L  # noqa: N812
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from torch.utils.data import Dataset

from lightning_diffal import ActiveLearning


class Counted(Dataset):
    """A list of items. Notes the index of each one drawn while a model trains."""

    def __init__(self, items):
        self.items, self.recording, self.drawn = list(items), False, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        if self.recording:
            self.drawn.append(int(index))
        return self.items[index]


class Recorder(L.Callback):
    """Turns the recording on for the training epochs of each fit; `fits` holds each fit's epochs of drawn indices."""

    reset_each_round = False

    def __init__(self, dataset):
        self.dataset, self.fits = dataset, []

    def on_train_start(self, trainer, pl_module):
        self.fits.append([])

    def on_train_epoch_start(self, trainer, pl_module):
        self.dataset.recording, self.dataset.drawn = True, []

    def on_train_epoch_end(self, trainer, pl_module):
        self.dataset.recording = False
        self.fits[-1].append(self.dataset.drawn)


def labeled_by_fit(folder):
    """From `rounds.jsonl`: the points labeled when each fit began."""
    known, fits = set(), []
    for line in (folder / "active_learning" / "rounds.jsonl").read_text().splitlines():
        known = known | set(json.loads(line)["indices"])
        fits.append(known)
    return fits


def check_only_labeled_were_drawn(recorder, folder):
    assert recorder.fits
    for epochs, labeled in zip(recorder.fits, labeled_by_fit(folder), strict=False):
        for drawn in epochs:
            assert drawn, "every epoch trains"
            assert set(drawn) <= labeled, "no unlabeled point is trained on"


class Snapshots:
    """A selector that keeps the snapshots it was given and asks for the first unlabeled points."""

    def __init__(self, *needs):
        self.needs, self.passes, self.given = frozenset(needs or ("embeddings", "logits")), 1, []

    def __repr__(self):
        return "Snapshots()"

    def __call__(self, snapshot, size):
        self.given.append(snapshot)
        return snapshot.unlabeled[:size]


def asks_first(**options):
    """An ActiveLearning of two rounds by default, whose selector keeps its snapshots."""
    return ActiveLearning(
        **{"query_size": 8, "budget": 20, "initial": 12, "selector": Snapshots("embeddings", "logits")} | options
    )


class Trains(L.LightningModule):
    """The part every module of these tests shares: a loss on (inputs, labels) and an optimizer."""

    def pair(self, batch):
        return batch

    def training_step(self, batch, batch_idx):
        inputs, labels = self.pair(batch)
        return cross_entropy(self(inputs), labels)

    def configure_optimizers(self):
        return AdamW(self.parameters(), 1e-3)


class Small(Trains):
    """Two Linear layers on eight numbers."""

    def __init__(self, classes=4, width=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.backbone(x))
