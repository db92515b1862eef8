"""The smallest use: a model, a Trainer and loaders as you have them, and one callback.

python examples/smallest_use.py
"""

import argparse

import lightning as L  # noqa: N812
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from lightning_diffal import DiffusionActiveLearning


def spirals(points: int, seed: int) -> TensorDataset:
    """Three arms of a spiral in the plane."""
    generator = torch.Generator().manual_seed(seed)
    arm, radius = torch.arange(points) % 3, torch.rand(points, generator=generator)
    angle = 4 * radius + 2.1 * arm + 0.1 * torch.randn(points, generator=generator)
    return TensorDataset(3 * torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arm)


class Network(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_acc", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()

    active = DiffusionActiveLearning(query_size=10, budget=arguments.budget)
    trainer = L.Trainer(
        max_epochs=arguments.epochs, callbacks=[active], accelerator="cpu", logger=False, enable_checkpointing=False
    )
    train = DataLoader(spirals(1_000, seed=0), batch_size=10, shuffle=True)
    test = DataLoader(spirals(500, seed=1), batch_size=500)
    history = active.fit(trainer, Network(), train, test)
    print(history)


if __name__ == "__main__":
    main()
