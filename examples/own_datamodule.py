"""One's own DataModule: random augmentation in training, and none when the pool is embedded.

    python examples/own_datamodule.py

`pool_dataloader` offers the points of `train_dataloader` as they are: what is asked depends on no random flip.
"""

import argparse
from collections.abc import Callable

import lightning as L  # noqa: N812
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from lightning_diffal import DiffusionActiveLearning


class Stripes(Dataset[tuple[Tensor, int]]):
    """Noisy 8 × 8 images of stripes: flat ones are class 0, upright ones class 1, both crossing class 2."""

    def __init__(self, points: int, seed: int, change: Callable[[Tensor], Tensor] = torch.clone) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.targets = (torch.arange(points) % 3).tolist()
        flat = torch.zeros(8, 8)
        flat[::2] = 1
        kinds = torch.stack([flat, flat.T, (flat + flat.T) / 2])
        self.images = kinds[self.targets] + 0.3 * torch.randn(points, 8, 8, generator=generator)
        self.change = change

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.change(self.images[index]), self.targets[index]


def flipped(image: Tensor) -> Tensor:
    return image.flip(0) if torch.rand(()) < 0.5 else image.flip(1)


class StripesData(L.LightningDataModule):
    def train_dataloader(self) -> "DataLoader[tuple[Tensor, int]]":
        return DataLoader(Stripes(600, 0, flipped), batch_size=8, shuffle=True)

    def pool_dataloader(self) -> "DataLoader[tuple[Tensor, int]]":
        return DataLoader(Stripes(600, 0), batch_size=200)

    def val_dataloader(self) -> "DataLoader[tuple[Tensor, int]]":
        return DataLoader(Stripes(300, 1), batch_size=300)


class Network(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_acc", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    epochs, active = parser.parse_args().epochs, DiffusionActiveLearning(query_size=10, budget=50)
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=[active], logger=False, enable_checkpointing=False
    )
    print(active.fit(trainer, Network(), datamodule=StripesData()))
