"""LightningCLI and a YAML file: the callback is one more entry, and each `fit` is a round.

    python examples/lightning_cli.py fit --config examples/lightning_cli.yaml    # again and again

Every call trains on what is labeled by then and asks for more, until the budget is spent; the rounds are kept in
the folder of the callback. Any argument can be changed from the command line.
"""

import lightning as L  # noqa: N812
import torch
from lightning.pytorch.cli import LightningCLI
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset


class Clouds(L.LightningDataModule):
    """Points around the corners of a simplex, one corner for each class."""

    def __init__(self, points: int = 500, classes: int = 4, batch_size: int = 10) -> None:
        super().__init__()
        self.points, self.classes, self.batch_size = points, classes, batch_size

    def part(self, points: int, seed: int) -> TensorDataset:
        targets = torch.arange(points) % self.classes
        noise = torch.randn(points, self.classes, generator=torch.Generator().manual_seed(seed))
        return TensorDataset(2 * one_hot(targets, self.classes) + 0.7 * noise, targets)

    def train_dataloader(self) -> "DataLoader[tuple[Tensor, ...]]":
        return DataLoader(self.part(self.points, 0), self.batch_size, shuffle=True)

    def val_dataloader(self) -> "DataLoader[tuple[Tensor, ...]]":
        return DataLoader(self.part(200, 1), batch_size=200)


class Network(L.LightningModule):
    def __init__(self, classes: int = 4, width: int = 32, lr: float = 0.01) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(classes, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_acc", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    LightningCLI(Network, Clouds, save_config_callback=None)
