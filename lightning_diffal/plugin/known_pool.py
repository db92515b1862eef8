"""A run as its folder has it: the points, what is known of their labels, and their features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.loader_tree import without_loader
from lightning_diffal.plugin.features.choice import best_features
from lightning_diffal.plugin.features.files import FeatureFile, stored_candidates
from lightning_diffal.plugin.features.fixed import FEATURES, sources_of_auto
from lightning_diffal.plugin.features.graph_files import GraphFolder
from lightning_diffal.plugin.features.source import FeatureSource
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.dataset.fingerprint import length_of, match_fingerprint, size_of, take_fingerprint
from lightning_diffal.pool.dataset.items import MapStyle
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.ledger_entries import other_dataset
from lightning_diffal.pool.randomness import temporary_seed


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownPool:
    """Points with the labels that are known, and what neighbors are found by."""

    folder: Path
    """Of the run."""
    fingerprint: str
    """Of its dataset."""
    indices: list[int]
    labels: Int[Tensor, " n"]
    """-1 where unknown."""
    points: Float[Tensor, "n d"]
    """Fixed features, or embeddings."""
    build_graph: Callable[..., NeighborGraph]


def read_known_pool(config: RunConfig, folder: Path | None, caller: str) -> KnownPool:
    """The pool of a run with fixed features, from its folder alone: no dataset, no model, no Trainer is needed.

    Args:
        caller: As messages quote it.
    """
    if folder is None:
        raise MisconfigurationException(
            f"{caller}: there is no run yet. active.fit(...) makes one; folder=... of the callback finds one that "
            "another process has made."
        )
    ledger = Ledger(folder)
    dataset = ledger.recorded_dataset()
    size = None if dataset is None else size_of(dataset)
    if dataset is None or size is None:
        raise MisconfigurationException(f"{caller}: there is no run in {folder}. active.fit(...) makes one.")
    if config.feature_source is None:
        raise MisconfigurationException(
            f"{caller}: there are no fixed features to diffuse labels over. features=... of the callback gives them, "
            'as features="inputs".'
        )
    pool = LabelPool(size)
    ledger.replay(ledger.read(config.identity(dataset)), pool)
    name, source = stored_source(config.feature_source, folder, ledger)
    path = folder / f"{name}.npz"
    points = stored_candidates(path) or list(range(size))
    features = FeatureFile(folder, source.name, dataset, points, path.name).read()
    if features is None:
        raise MisconfigurationException(
            f"{caller}: {path} is not there or damaged. Put a copy of it there; or a round of active.fit(...) computes "
            "the features again."
        )
    given_up = ledger.given_up
    rows = [row for row, index in enumerate(points) if index not in given_up]
    indices = [points[row] for row in rows]
    return KnownPool(
        folder=folder,
        fingerprint=dataset,
        indices=indices,
        labels=pool.labels[torch.tensor(indices)],
        points=features[torch.tensor(rows)],
        build_graph=GraphFolder(folder, name),
    )


def stored_source(source: FeatureSource, folder: Path, ledger: Ledger) -> tuple[str, FeatureSource]:
    """The name under which the features of a run are stored, and what they are of."""
    if source.kind != "auto":
        return FEATURES, source
    sources = sources_of_auto(source)
    judged = {name for record in ledger.records for name in record.feature_accuracy}
    # Inputs that are large are neither judged nor stored.
    names = [name for name in sources if name in judged or (not judged and (folder / f"{name}.npz").exists())]
    name = best_features(names or list(sources), ledger.records)
    return name, sources[name]


def embedded_pool(state: RunState | None, embeddings: Tensor | None, indices: Sequence[int]) -> KnownPool:
    """The pool as the last query of this process has embedded it."""
    if state is None or state.ledger.folder is None or embeddings is None:
        raise MisconfigurationException(
            "active.audit(): there is nothing to find neighbors by. features=... of the callback gives fixed features; "
            "without them it needs the embedding of a query of this process, as active.fit(...) makes it."
        )
    return KnownPool(
        folder=state.ledger.folder,
        fingerprint=state.fingerprint,
        indices=list(indices),
        labels=state.pool.labels[torch.tensor(indices)],
        points=embeddings.float(),
        build_graph=build_graph,
    )


def training_dataset(config: RunConfig, data: Mapping[str, Any], fingerprint: str) -> MapStyle | None:
    """The dataset in the arguments of `active.fit`, set up as a fit does; None if there is none in them.

    Raises:
        ValueError: It is not that of the run.
    """
    loaders, datamodule = data.get("train_dataloaders"), data.get("datamodule")
    if hasattr(loaders, "train_dataloader"):  # Lightning takes a DataModule there, too
        loaders, datamodule = None, loaders
    if loaders is None and datamodule is not None:
        with temporary_seed(config.seed):  # as before every round: the set-up may split data at random
            datamodule.prepare_data()
            datamodule.setup("fit")
            loaders = datamodule.train_dataloader()
    if loaders is None:
        return None
    dataset = without_loader(loaders, config.unlabeled)[0].dataset
    found = take_fingerprint(dataset, length_of(dataset) or 0, config.label_field)
    matched = match_fingerprint(found, fingerprint, dataset, config.label_field)
    if matched != fingerprint:
        raise ValueError(other_dataset("this run was made", fingerprint, matched))
    return dataset
