"""A pretrained torchvision backbone: its features are the embedding, and only a new head is trained.

python examples/pretrained_backbone.py                    # downloads CIFAR-10 and ResNet-18's ImageNet weights
python examples/pretrained_backbone.py --toy              # random images and weights: nothing is downloaded
"""

import argparse
from typing import Any

import lightning as L  # noqa: N812
import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.transforms import Compose, Normalize, ToTensor

from lightning_diffal import DiffusionActiveLearning


class FineTuned(L.LightningModule):
    def __init__(self, weights: str | None, classes: int = 10) -> None:
        super().__init__()
        self.backbone = torchvision.models.resnet18(weights=weights)
        width = self.backbone.fc.in_features
        self.backbone.fc = nn.Identity()
        self.backbone.requires_grad_(False)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(images))  # type: ignore[no-any-return]

    def on_train_epoch_start(self) -> None:
        self.backbone.eval()  # frozen BatchNorm, too

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_acc", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.head.parameters(), lr=0.001)


def images(toy: bool, folder: str, train: bool) -> Any:
    as_in_imagenet = Compose([ToTensor(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    if toy:
        return torchvision.datasets.FakeData(60, (3, 32, 32), 10, as_in_imagenet)
    return torchvision.datasets.CIFAR10(folder, train, as_in_imagenet, download=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--data", default="data")
    arguments = parser.parse_args()
    size, epochs = (10, 1) if arguments.toy else (200, 10)

    active = DiffusionActiveLearning(
        query_size=size,
        budget=3 * size,
        layer="backbone",  # its output is the embedding
        pool_batch_size=200,
    )
    trainer = L.Trainer(max_epochs=epochs, callbacks=[active], logger=False, enable_checkpointing=False)
    train, test = (images(arguments.toy, arguments.data, part) for part in (True, False))
    model = FineTuned(None if arguments.toy else "DEFAULT")
    history = active.fit(trainer, model, DataLoader(train, 20, shuffle=True), DataLoader(test, 200))
    print(history)


if __name__ == "__main__":
    main()
