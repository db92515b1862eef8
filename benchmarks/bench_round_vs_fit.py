"""What a round adds to `trainer.fit`: the embedding pass, the graph, the query, and a loader over labeled points.

    python benchmarks/bench_round_vs_fit.py
    python benchmarks/bench_round_vs_fit.py --cpu --repeats 3 --labels 4000
    python benchmarks/bench_round_vs_fit.py --cpu --whole-run

Synthetic data of the sizes of the paper's MNIST and CIFAR-10 studies, with their networks, batch sizes and epochs.
Three rows for each, with both sides in one run, alternating:

* the seconds a round adds, as a fraction of the fit before it, and what embedding and graph alone are of it;
* the embedding pass against a bare inference loop over the same loader;
* an epoch of the restricted loader against the user's own loader over a dataset of that size.

With `--whole-run` one row for each: all rounds of a run of the paper's length, their embeddings and graphs against
their fits.
"""

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import lightning as L  # noqa: N812
import torch
from measure import timed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

from lightning_diffal import DiffusionActiveLearning
from lightning_diffal.plugin.data.copy_loader import pool_loader
from lightning_diffal.plugin.data.loaders import restrict_to_labeled
from lightning_diffal.plugin.model.embedding import embed
from lightning_diffal.plugin.model.reader import ModelReading
from lightning_diffal.progress import StageTimer


@dataclass(frozen=True)
class Setting:
    """A study of the paper: its pool, network and training."""

    name: str
    points: int
    inputs: int
    hidden: tuple[int, ...]
    labels: int
    query: int
    mini_batch: int
    neighbors: int
    batch: int
    epochs: int
    first: int
    """Labels that a run of the paper starts from."""
    budget: int
    """And those it ends with."""


SETTINGS = [
    Setting("mnist", 10_000, 784, (100, 50), 100, 20, 1, 10, 8, 100, 20, 300),
    Setting("cifar10", 50_000, 512, (512, 20), 1_000, 200, 10, 20, 100, 100, 200, 2_000),
]


class Network(L.LightningModule):
    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        layers = [
            layer
            for before, after in zip(widths, hidden, strict=False)
            for layer in (nn.BatchNorm1d(before), nn.Linear(before, after), nn.ReLU())
        ]
        self.hidden = nn.Sequential(*layers)
        self.classifier = nn.Linear(hidden[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.hidden(x))  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def pool_of(setting: Setting) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(setting.points) % 10
    centers = torch.randn(10, setting.inputs, generator=generator)
    return TensorDataset(centers[classes] + torch.randn(setting.points, setting.inputs, generator=generator), classes)


def alternating(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> list[tuple[float, float]]:
    ours(), theirs()  # the first calls of torch are slower
    return [(timed(ours)[1], timed(theirs)[1]) for _ in range(repeats)]


def trainer_for(folder: str, epochs: int, *callbacks: L.Callback) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def active_learning(setting: Setting, initial: int, budget: int) -> DiffusionActiveLearning:
    return DiffusionActiveLearning(
        query_size=setting.query,
        budget=budget,
        initial=initial,
        mini_batch=setting.mini_batch,
        neighbors=setting.neighbors,
        steps=4,
    )


def whole_run(setting: Setting) -> str:
    """The row of a run of the paper's length."""
    torch.manual_seed(0)
    active = active_learning(setting, setting.first, setting.budget)
    loader = DataLoader(pool_of(setting), batch_size=setting.batch, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_for(folder, setting.epochs, active)
        history = active.fit(trainer, Network(setting.inputs, setting.hidden), loader)
    fit, embedding, graph = (
        sum(row.get(f"{stage} s", 0.0) for row in history) for stage in ("fit", "embedding", "graph")
    )
    return (
        f"| {setting.name} | {len(history)} rounds, {setting.first} to {setting.budget} labels: embedding + graph "
        f"| {embedding:.2f} + {graph:.2f} s | fits {fit:.1f} s | {(embedding + graph) / fit:.1%}; embedding "
        f"{embedding / fit:.1%}, graph {graph / fit:.1%} |"
    )


def measured(setting: Setting, repeats: int) -> list[str]:
    """The rows of the table for one setting."""
    torch.manual_seed(0)
    dataset, network = pool_of(setting), Network(setting.inputs, setting.hidden)
    loader = DataLoader(dataset, batch_size=setting.batch, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        active = active_learning(setting, setting.labels, setting.points)
        trainer = trainer_for(folder, setting.epochs, active)
        trainer.fit(network, loader)
    took = active.history[0]
    fit = took["fit s"]
    stages = [took[f"{stage} s"] for stage in ("embedding", "graph", "query")]
    parts = " + ".join(f"{value:.2f}" for value in stages)
    added = "a round adds (embedding + graph + query)"
    rows = [
        f"| {setting.name} | {added} | {parts} s | fit {fit:.1f} s | {sum(stages) / fit:.1%}; embedding "
        f"{stages[0] / fit:.1%}, graph {stages[1] / fit:.1%} |"
    ]
    ordered = pool_loader(loader, range(setting.points), None)

    def by_us() -> None:
        needs = frozenset({"embeddings"})
        embed(trainer, network, ordered, needs=needs, reading=ModelReading(), passes=1, timer=StageTimer())

    @torch.no_grad()
    def bare() -> None:
        network.eval()
        torch.cat([network(batch[0]) for batch in ordered])

    rows.append(compared(setting, "embedding pass / bare inference loop", alternating(by_us, bare, repeats)))
    labeled = torch.randperm(setting.points)[: setting.labels].tolist()
    ours = restrict_to_labeled(loader, labeled, None, 1)
    theirs = DataLoader(Subset(dataset, labeled), batch_size=setting.batch, shuffle=True)

    def epochs_of(loader: "DataLoader[Any]") -> Callable[[], object]:
        return lambda: [None for _ in range(2_000 // len(loader) + 1) for _ in loader]

    both = alternating(epochs_of(ours), epochs_of(theirs), repeats)
    rows.append(compared(setting, "restricted loader / the user's own", both))
    return rows


def compared(setting: Setting, what: str, pairs: list[tuple[float, float]]) -> str:
    ours, theirs = zip(*pairs, strict=True)
    ratios = sorted(a / b for a, b in pairs)
    return (
        f"| {setting.name} | {what} | {statistics.median(ours):.3f} s | {statistics.median(theirs):.3f} s "
        f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=[setting.name for setting in SETTINGS])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--labels", type=int, help="that the fit has, instead of the study's first ones")
    parser.add_argument("--whole-run", action="store_true", help="all rounds of a run of the paper's length")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of one thread, for a machine that is busy")
    arguments = parser.parse_args()
    if arguments.cpu:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time  # what every stage is timed with
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    print(f"torch {torch.__version__}, lightning {L.__version__}, {torch.get_num_threads()} threads, CPU\n")
    print("| setting | what | ours | beside it | ratio |\n|---|---|---|---|---|")
    for setting in SETTINGS:
        if arguments.labels is not None:
            setting = replace(setting, labels=arguments.labels)  # noqa: PLW2901
        if setting.name in arguments.settings:
            rows = [whole_run(setting)] if arguments.whole_run else measured(setting, arguments.repeats)
            print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
