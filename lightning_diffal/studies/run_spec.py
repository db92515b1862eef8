"""A run: a study with one selector and one seed, and everything that determines its outcome. Needs no Lightning."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightning_diffal.diffusion.learn_from_graph import LearnFromGraph
from lightning_diffal.pool.randomness import seed_of
from lightning_diffal.studies.components import load_components
from lightning_diffal.studies.data import Points, Source, checkerboard, draw_pool, load
from lightning_diffal.studies.definitions import Study
from lightning_diffal.studies.results import LEARNING, result_path
from lightning_diffal.studies.selector_registry import SELECTORS
from lightning_diffal.studies.vgg_features import load_features

# What `--features` takes beside the names of layers.
FEATURES = ("inputs", "auto", "none")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a worker process needs to execute a run."""

    study: Study
    selector: str
    seed: int
    settings: dict[str, Any]
    data: Path
    out: Path

    @property
    def result(self) -> Path:
        """The result file, written at the end."""
        return self.out / result_path(self.study.name, self.selector, self.seed, self.settings)

    @property
    def run_folder(self) -> Path:
        """The folder of the ledger and checkpoints until then."""
        return self.out / ".runs" / self.study.name / self.result.stem

    @property
    def fits(self) -> int:
        return self.study.fits(self.settings["num_classes"])

    def __str__(self) -> str:
        return f"{self.study.name}, {self.selector}{LEARNING * self.study.learn_from_graph}, seed {self.seed}"


def plan(study: Study, selectors: Sequence[str], seeds: Sequence[int], data: Path, out: Path) -> list[Run]:
    """All runs of a study; settings that cannot work are refused here. Frozen features are computed now.

    Seeds are outermost: whenever the runs are stopped, all selectors have the same ones.
    """
    common: dict[str, Any] = {"num_classes": 2}
    if study.squares is None:
        source = load_source(study, data)
        draw_pool(source, study.pool, seeds[0], study.imbalance)
        with torch.device("meta"):  # checks the shape without allocating weights
            network = study.network.build(tuple(source.train.x.shape[1:]), source.num_classes, dropout=False)
        check_graph_features(study, network)
        common = {"num_classes": source.num_classes, "data": source.digest}
    study.check(common["num_classes"])
    settings = {name: study.settings() | own_settings(study, name) | common for name in selectors}
    return [
        Run(study=study, selector=name, seed=seed, settings=settings[name], data=data, out=out)
        for seed in seeds
        for name in selectors
    ]


def check_graph_features(study: Study, network: nn.Module) -> None:
    layers = [f"layers.{name}" for name, _ in network.named_modules() if name]
    if study.graph_features not in {*FEATURES, *layers}:
        raise ValueError(
            f"--features {study.graph_features}: {', '.join(FEATURES)} or a layer of the network is needed, one of "
            f"{', '.join(layers)}."
        )


def own_settings(study: Study, selector: str) -> dict[str, Any]:
    """The settings in which the runs of one study may differ: the selector, and what it is given."""
    used = SELECTORS[selector](study)
    own: dict[str, Any] = {"selector": repr(used)}
    if study.learn_from_graph:
        own["learn_from_graph"] = repr(graph_learning(study))
    if study.learn_from_graph or "features" in used.needs:
        own["graph_features"] = study.graph_features
    return own


def graph_learning(study: Study) -> LearnFromGraph:
    """How fits learn from the graph: with the study's K, all else by default."""
    return LearnFromGraph(neighbors=study.neighbors)


def load_source(study: Study, data: Path) -> Source:
    if study.components is not None:
        return load_components(study.dataset, data, study.components)
    return (load_features if study.features else load)(study.dataset, data)


def pool_and_test_set(study: Study, seed: int, data: Path) -> tuple[Points, Points]:
    """The pool and the test set of a seed, the same for every selector."""
    if study.squares is not None:
        pool = checkerboard(study.pool, study.squares, seed_of(seed, 0))
        return pool, checkerboard(study.test or 1, study.squares, seed_of(seed, 1))
    source = load_source(study, data)
    return draw_pool(source, study.pool, seed, study.imbalance), source.test
