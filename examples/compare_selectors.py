"""The callback on real digits: the same network, Trainer and first labels for every selector.

    python examples/compare_selectors.py --seeds 5

Handwritten digits of 8 by 8 pixels (scikit-learn's, nothing is downloaded), a network of two hidden layers, 10 first
labels and queries of 10. Accuracy is on digits that are not in the pool. Runs that were stopped go on where they were.
"""

import argparse
import logging
import statistics
import warnings
from pathlib import Path

import lightning as L  # noqa: N812
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from lightning_diffal import (
    ActiveLearning,
    CoresetSelector,
    DiffusionSelector,
    History,
    RandomSelector,
    Selector,
    UncertaintySelector,
)

SELECTORS: dict[str, Selector] = {
    "diffusion": DiffusionSelector(neighbors=10, steps=4),
    "coreset": CoresetSelector(),
    "uncertainty": UncertaintySelector(),
    "random": RandomSelector(),
}
COLORS = {"diffusion": "#0072b2", "coreset": "#009e73", "uncertainty": "#d55e00", "random": "#777777"}


class Digits(L.LightningDataModule):
    """An ordinary DataModule. It knows nothing of active learning."""

    def setup(self, stage: str) -> None:
        images, classes = load_digits(return_X_y=True)
        points, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(classes)
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
        self.train = TensorDataset(points[order[:1400]], labels[order[:1400]])
        self.val = TensorDataset(points[order[1400:]], labels[order[1400:]])

    def train_dataloader(self) -> "DataLoader[tuple[Tensor, ...]]":
        return DataLoader(self.train, batch_size=8, shuffle=True)

    def val_dataloader(self) -> "DataLoader[tuple[Tensor, ...]]":
        return DataLoader(self.val, batch_size=512)


class Network(L.LightningModule):
    """An ordinary LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_acc", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def learn(selector: Selector, seed: int, budget: int, epochs: int, folder: Path) -> History:
    """One run: everything but the selector depends on the seed alone."""
    active = ActiveLearning(query_size=10, budget=budget, selector=selector, seed=seed, folder=folder)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        check_val_every_n_epoch=epochs,
        callbacks=[active],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    torch.manual_seed(seed)
    return active.fit(trainer, Network(), datamodule=Digits())


def draw(curves: dict[str, list[list[float]]], labels: list[int], path: Path) -> None:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, runs in curves.items():
        mean = [statistics.mean(values) for values in zip(*runs, strict=True)]
        spread = [statistics.pstdev(values) for values in zip(*runs, strict=True)]
        low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
        axes.plot(
            labels, mean, color=COLORS[name], linewidth=2, label=f"{name}, {statistics.mean(mean):.3f} on average"
        )
        axes.fill_between(labels, low, high, color=COLORS[name], alpha=0.15, linewidth=0)
    axes.set(xlabel="labels", ylabel="accuracy on unseen digits")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("out/compare"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    curves: dict[str, list[list[float]]] = {name: [] for name in SELECTORS}
    runs = [(seed, name) for seed in range(arguments.seeds) for name in SELECTORS]
    for seed, name in tqdm(runs, desc="runs"):
        folder = arguments.out / f"{name}-{seed}"
        history = learn(SELECTORS[name], seed, arguments.budget, arguments.epochs, folder)
        curves[name].append([value or 0.0 for value in history.metric("val_acc")])
    labels = history.labels
    print("| labels | " + " | ".join(curves) + " |\n|---|" + "---|" * len(curves))
    for place, count in enumerate(labels):
        row = [statistics.mean(run[place] for run in runs) for runs in curves.values()]
        print(f"| {count} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
    draw(curves, labels, arguments.out / "compare.png")
    print(f"\nThe figure is {arguments.out / 'compare.png'}")


if __name__ == "__main__":
    main()
