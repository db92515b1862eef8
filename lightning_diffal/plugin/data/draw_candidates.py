"""The part of a large pool that one query sees."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from lightning_diffal.graph.knn.brute_force import brute_force
from lightning_diffal.graph.knn.nearest_neighbors import default_neighbors
from lightning_diffal.graph.neighbor_graph import build_graph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.randomness import seed_of


def draw_candidates(trainer: Any, config: RunConfig, state: RunState) -> RunState:
    """The state with all labeled points, their neighbors, and `config.candidates` unlabeled points as its candidates.

    They are drawn by seed and round, the same on every rank and after a restart. Neighbors are known by fixed features
    only: without those, the embedding of the whole pool would be needed to find them.
    """
    pool = torch.tensor(state.candidates)
    known = state.pool.labels[pool] != UNLABELED
    unlabeled = (~known).nonzero()[:, 0]
    if config.candidates is None or len(unlabeled) <= config.candidates:
        return state
    # Not the seed of the selector, whose draws would follow these.
    generator = torch.Generator().manual_seed(seed_of(config.seed_for(state.round), config.candidates))
    drawn = sample_without_replacement(config.candidates, len(unlabeled), generator, pool.device)
    near = from_rank_zero(trainer, lambda: neighbors_of(state, known.nonzero()[:, 0], config))
    seen = known.clone()
    seen[unlabeled[drawn]] = seen[near] = True
    rows = seen.nonzero()[:, 0]
    rank_zero_info(
        f"candidates={config.candidates}: the query sees {len(rows)} of {len(pool)} points: {int(known.sum())} labeled "
        f"ones, {config.candidates} drawn, and {len(rows) - int(known.sum()) - config.candidates} neighbors of labeled "
        f"ones{'' if state.features is not None else ' (known with features=... only)'}."
    )
    return replace(
        state,
        candidates=pool[rows].tolist(),
        features=None if state.features is None else state.features[rows],
        feature_sets={name: features[rows] for name, features in state.feature_sets.items()},
        build_feature_graph=build_graph,  # other points in the next round: nothing to keep
    )


def neighbors_of(state: RunState, labeled: Int[Tensor, " l"], config: RunConfig) -> Int[Tensor, " m"]:
    """The rows of the nearest points of each labeled one by the fixed features, labeled ones among them.

    As many of each as the selector's graph has neighbors. Cost: l n distances.
    """
    if state.features is None or not len(labeled):
        return labeled
    points = state.features.float()
    neighbors = getattr(config.selector, "neighbors", None) or default_neighbors(len(points))
    near = brute_force(points - points.mean(dim=0), labeled, min(neighbors + 1, len(points)), iter)
    rows: Tensor = near.unique()
    return rows
