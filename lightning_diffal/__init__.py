"""Diffusion-based deep active learning for PyTorch Lightning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning_diffal.diffusion.diffuse import diffuse
from lightning_diffal.diffusion.learn_from_graph import LearnFromGraph
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass
from lightning_diffal.selectors.base import ScoreSelector, Selector
from lightning_diffal.selectors.diffusion import batch_query
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot

if TYPE_CHECKING:
    from lightning_diffal.labeling.people import People
    from lightning_diffal.plugin.callback import ActiveLearning
    from lightning_diffal.plugin.data.samplers import LabeledSampler
    from lightning_diffal.plugin.diffusion import DiffusionActiveLearning

__version__ = "0.1.0"

__all__ = [
    "UNLABELED",
    "ActiveLearning",
    "DiffusionActiveLearning",
    "History",
    "LabeledSampler",
    "LearnFromGraph",
    "NeighborGraph",
    "People",
    "PerClass",
    "Query",
    "ScoreSelector",
    "Selector",
    "Snapshot",
    "batch_query",
    "build_graph",
    "diffuse",
]

# Names that the core does without are imported at their first use: those of plugin need Lightning.
_LAZY = {
    "ActiveLearning": "lightning_diffal.plugin.callback",
    "DiffusionActiveLearning": "lightning_diffal.plugin.diffusion",
    "LabeledSampler": "lightning_diffal.plugin.data.samplers",
    "People": "lightning_diffal.labeling.people",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
