"""A small model, a small pool that counts what is drawn from it, and a quiet Trainer."""

import lightning as L  # noqa: N812, as Lightning's own documentation does
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, Dataset

from lightning_diffal import DiffusionActiveLearning


class Clouds(Dataset):
    """Three clouds in the plane. Notes every point that is drawn from it while a model trains."""

    def __init__(self, n=120, classes=3):
        generator = torch.Generator().manual_seed(0)
        self.targets = torch.arange(n) % classes
        self.x = torch.randn(n, 2, generator=generator) + 3 * one_hot(self.targets, classes)[:, :2]
        self.recording, self.drawn = False, []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.recording:
            self.drawn.append(int(index))
        return self.x[index], self.targets[index]


class Data(L.LightningDataModule):
    def __init__(self, dataset=None, batch_size=8, **options):
        super().__init__()
        self.dataset = Clouds() if dataset is None else dataset
        self.batch_size, self.options = batch_size, {"shuffle": True} | options

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=self.batch_size, **self.options)

    def val_dataloader(self):
        return val_loader()


def val_loader():
    clouds = Clouds()
    return DataLoader(torch.utils.data.TensorDataset(clouds.x, clouds.targets), batch_size=60)


class Net(L.LightningModule):
    """Two layers, and a diary of every fit."""

    def __init__(self, classes=3, lr=0.01):
        super().__init__()
        torch.manual_seed(0)
        self.save_hyperparameters("classes", "lr")
        self.lr, self.diary = lr, []
        self.backbone = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.backbone(x))

    def on_train_start(self):
        weights = torch.cat([p.detach().flatten().clone() for p in self.parameters()])
        optimizer = self.trainer.optimizers[0]
        self.diary.append(
            {
                "epoch": self.trainer.current_epoch,
                "step": self.trainer.global_step,
                "weights": weights,
                "momenta": len(optimizer.state),
                "lr": optimizer.param_groups[0]["lr"],
                "drawn": [],
                "labels": {},
                "steps": 0,
            }
        )
        self.recorded().recording, self.recorded().drawn = True, []

    def recorded(self):
        """The counting dataset, under whatever Lightning and we have put around it."""
        loader = self.trainer.train_dataloader
        while not isinstance(loader, DataLoader):
            loader = next(iter(loader.values() if isinstance(loader, dict) else loader))
        dataset = loader.dataset
        while not isinstance(dataset, Clouds):
            dataset = dataset.dataset
        return dataset

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.diary[-1]["steps"] += 1
        loss = cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.diary[-1]["drawn"].append(self.recorded().drawn)
        self.recorded().drawn = []

    def on_train_end(self):
        self.recorded().recording = False

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def quiet(tmp_path, active, *callbacks, **options):
    """A Trainer that draws and writes nothing of its own."""
    defaults = {
        "accelerator": "cpu",
        "max_epochs": 2,
        "default_root_dir": tmp_path,
        "callbacks": [active, *callbacks],
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return L.Trainer(**defaults | options)


def learner(**options):
    return DiffusionActiveLearning(
        **{"query_size": 8, "budget": 33, "initial": 9, "neighbors": 5, "steps": 2} | options
    )
