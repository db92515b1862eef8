"""Small data sets that no rule of this library was made on: does active learning pay there, too.

    python benchmarks/bench_small_data_sets.py                          # ten data sets, four seeds
    python benchmarks/bench_small_data_sets.py --data-sets moons --seeds 2

Data sets of scikit-learn and made-up ones, a fully connected network with two hidden layers, two first labels of each
class and nine queries of as many points as there are classes (four at least). Mean test accuracy over the ten fits, and
the difference to random choice, paired by seed, ± two standard errors.
"""

import argparse
import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import lightning as L  # noqa: N812
import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from lightning_diffal import ActiveLearning, PerClass
from lightning_diffal.selectors import (
    BADGESelector,
    CoverageSelector,
    DiffusionSelector,
    MarginSelector,
    RandomSelector,
    Selector,
    UHerdingSelector,
)

SELECTORS: dict[str, Selector] = {
    "random": RandomSelector(),
    "coverage": CoverageSelector(),
    "uherding": UHerdingSelector(),
    "badge": BADGESelector(),
    "margin": MarginSelector(),
    "diffusion": DiffusionSelector(),
}


@dataclass(frozen=True, eq=False)
class Data:
    """Points, their classes, and the features of the graph: the points themselves, if nothing else is said."""

    points: Tensor
    labels: Tensor
    features: Tensor | None = None


def standardized(points: np.ndarray, labels: np.ndarray) -> Data:
    return Data(torch.tensor((points - points.mean(0)) / (points.std(0) + 1e-3)).float(), torch.tensor(labels).long())


def digits() -> Data:
    return standardized(*datasets.load_digits(return_X_y=True))


def digits_noise_for_features() -> Data:
    noise = torch.randn(1797, 16, generator=torch.Generator().manual_seed(0))
    return replace(digits(), features=noise)


def breast_cancer() -> Data:
    return standardized(*datasets.load_breast_cancer(return_X_y=True))


def wine() -> Data:
    return standardized(*datasets.load_wine(return_X_y=True))


def moons() -> Data:
    return standardized(*datasets.make_moons(2000, noise=0.2, random_state=0))


def rings() -> Data:
    """Five rings around each other."""
    rng = np.random.default_rng(0)
    labels, angle = rng.integers(5, size=3000), rng.uniform(0, 2 * np.pi, 3000)
    radius = labels + 1 + 0.15 * rng.normal(size=3000)
    return standardized(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels)


def table_20() -> Data:
    """20 columns, ten of which say something about the four classes."""
    parts = {"n_informative": 6, "n_redundant": 4, "n_classes": 4, "n_clusters_per_class": 2}
    return standardized(*datasets.make_classification(4000, 20, random_state=0, **parts))


def table_8() -> Data:
    """Eight columns, seven of which say something about the four classes."""
    parts = {"n_informative": 5, "n_redundant": 2, "n_classes": 4, "n_clusters_per_class": 2}
    return standardized(*datasets.make_classification(3000, 8, random_state=1, class_sep=1.3, **parts))


def linear_30() -> Data:
    """30 dimensions without clusters, and five classes that are linear in them, with noise."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4000, 30))
    return standardized(points, (points @ rng.normal(size=(30, 5)) + rng.normal(size=(4000, 5))).argmax(axis=1))


def blobs_under_noise() -> Data:
    """Ten clusters in eight dimensions, and four more in which noise is several times as large."""
    points, labels = datasets.make_blobs(3000, 8, centers=10, cluster_std=2.0, random_state=0)
    noise = 30 * np.random.default_rng(0).normal(size=(3000, 4))
    points = np.hstack([points, noise])
    return Data(torch.tensor((points - points.mean(0)) / 10).float(), torch.tensor(labels).long())


DATA_SETS: dict[str, Callable[[], Data]] = {
    make.__name__.replace("_", " "): make
    for make in (
        digits,
        digits_noise_for_features,
        breast_cancer,
        wine,
        moons,
        rings,
        table_20,
        table_8,
        linear_30,
        blobs_under_noise,
    )
}


class Net(L.LightningModule):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, points: Tensor) -> Tensor:
        logits: Tensor = self.net(points)
        return logits

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


def mean_accuracy(data: Data, selector: Selector, learn_from_graph: bool, seed: int, epochs: int) -> float:
    """Of the ten fits of a run, on the three tenths of the points that are no part of the pool."""
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(1))
    pool, test = order[: int(0.7 * len(order))], order[int(0.7 * len(order)) :]
    classes = int(data.labels.max()) + 1
    size = max(4, classes)
    L.seed_everything(seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        active = ActiveLearning(
            size,
            2 * classes + 9 * size,
            selector=selector,
            initial=PerClass(2),
            features="inputs" if data.features is None else data.features[pool],
            learn_from_graph=learn_from_graph,
            seed=seed,
            folder=folder,
        )
        trainer = L.Trainer(
            max_epochs=epochs,
            check_val_every_n_epoch=epochs,
            callbacks=[active],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        history = active.fit(
            trainer,
            Net(data.points.shape[1], classes),
            DataLoader(TensorDataset(data.points[pool], data.labels[pool]), 10, shuffle=True),
            DataLoader(TensorDataset(data.points[test], data.labels[test]), len(test)),
        )
    found = torch.tensor([value for value in history.metric("accuracy") if value is not None])
    return float(found.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", nargs="+", choices=DATA_SETS, default=list(DATA_SETS))
    parser.add_argument("--selectors", nargs="+", choices=SELECTORS, default=list(SELECTORS))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print(f"torch {torch.__version__}, {given.seeds} seeds\n")
    print("| data set | points, dimensions, classes | selector | mean accuracy | minus random |\n|---|---|---|---|---|")
    for name in given.data_sets:
        data = DATA_SETS[name]()
        about = f"{len(data.labels):,}, {data.points.shape[1]}, {int(data.labels.max()) + 1}"
        random = None
        for selector, learn in [
            *((selector, False) for selector in dict.fromkeys(["random", *given.selectors])),
            ("random", True),
            ("coverage", True),
        ]:
            runs = torch.tensor(
                [mean_accuracy(data, SELECTORS[selector], learn, seed, given.epochs) for seed in range(given.seeds)]
            )
            random = runs if random is None else random
            row = f"{selector}{', learning from the graph' if learn else ''}"
            print(f"| {name} | {about} | {row} | {runs.mean():.3f} | {difference(runs - random)} |", flush=True)


def difference(paired: Tensor) -> str:
    if len(paired) < 2:
        return f"{paired.mean():+.3f}"
    return f"{paired.mean():+.3f} ± {2 * paired.std() / len(paired) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
