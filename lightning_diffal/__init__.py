"""Diffusion-based deep active learning for PyTorch Lightning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning_diffal.diffusion.diffuse import diffuse as diffuse
from lightning_diffal.distributed import Ranks as Ranks
from lightning_diffal.graph.neighbor_graph import NeighborGraph as NeighborGraph
from lightning_diffal.graph.neighbor_graph import build_graph as build_graph
from lightning_diffal.labels import UNLABELED as UNLABELED
from lightning_diffal.pool.history import History as History
from lightning_diffal.pool.initial import PerClass as PerClass
from lightning_diffal.pool.label_pool import LabelPool as LabelPool
from lightning_diffal.selectors.badge import BADGESelector as BADGESelector
from lightning_diffal.selectors.bald import BALDSelector as BALDSelector
from lightning_diffal.selectors.base import Query as Query
from lightning_diffal.selectors.base import Selector as Selector
from lightning_diffal.selectors.coreset import CoresetSelector as CoresetSelector
from lightning_diffal.selectors.diffusion import DiffusionSelector as DiffusionSelector
from lightning_diffal.selectors.diffusion import batch_query as batch_query
from lightning_diffal.selectors.dirichlet import DirichletSelector as DirichletSelector
from lightning_diffal.selectors.local_max import LocalMaxSelector as LocalMaxSelector
from lightning_diffal.selectors.poisson import PoissonSelector as PoissonSelector
from lightning_diffal.selectors.probcover import ProbCoverSelector as ProbCoverSelector
from lightning_diffal.selectors.random import RandomSelector as RandomSelector
from lightning_diffal.selectors.score import ScoreSelector as ScoreSelector
from lightning_diffal.selectors.score import take_lowest as take_lowest
from lightning_diffal.selectors.snapshot import Snapshot as Snapshot
from lightning_diffal.selectors.snapshot import StochasticPasses as StochasticPasses
from lightning_diffal.selectors.typiclust import TypiClustSelector as TypiClustSelector
from lightning_diffal.selectors.uncertainty import EntropySelector as EntropySelector
from lightning_diffal.selectors.uncertainty import MarginSelector as MarginSelector
from lightning_diffal.selectors.uncertainty import UncertaintySelector as UncertaintySelector

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lightning_diffal.plugin.callback import ActiveLearning as ActiveLearning
    from lightning_diffal.plugin.data.samplers import LabeledSampler as LabeledSampler
    from lightning_diffal.plugin.diffusion import DiffusionActiveLearning as DiffusionActiveLearning


# The names that need Lightning are imported when they are first asked for: the core works without it.
_LATER = {
    "ActiveLearning": "lightning_diffal.plugin.callback",
    "DiffusionActiveLearning": "lightning_diffal.plugin.diffusion",
    "LabeledSampler": "lightning_diffal.plugin.data.samplers",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
