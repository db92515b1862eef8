"""Selectors: which points to ask about."""

from lightning_diffal.selectors.badge import BADGESelector
from lightning_diffal.selectors.bait import BAITSelector
from lightning_diffal.selectors.bald import BALDSelector
from lightning_diffal.selectors.base import ScoreSelector, Selector
from lightning_diffal.selectors.coreset import CoresetSelector
from lightning_diffal.selectors.coverage import CoverageSelector
from lightning_diffal.selectors.diffusion import DiffusionSelector
from lightning_diffal.selectors.dirichlet import DirichletSelector
from lightning_diffal.selectors.local_max import LocalMaxSelector
from lightning_diffal.selectors.poisson import PoissonSelector
from lightning_diffal.selectors.probcover import ProbCoverSelector
from lightning_diffal.selectors.query import Query, take_lowest
from lightning_diffal.selectors.random import RandomSelector
from lightning_diffal.selectors.snapshot import Snapshot, StochasticPasses
from lightning_diffal.selectors.typiclust import TypiClustSelector
from lightning_diffal.selectors.uherding import UHerdingSelector
from lightning_diffal.selectors.uncertainty import EntropySelector, MarginSelector, UncertaintySelector

__all__ = [
    "BADGESelector",
    "BAITSelector",
    "BALDSelector",
    "CoresetSelector",
    "CoverageSelector",
    "DiffusionSelector",
    "DirichletSelector",
    "EntropySelector",
    "LocalMaxSelector",
    "MarginSelector",
    "PoissonSelector",
    "ProbCoverSelector",
    "Query",
    "RandomSelector",
    "ScoreSelector",
    "Selector",
    "Snapshot",
    "StochasticPasses",
    "TypiClustSelector",
    "UHerdingSelector",
    "UncertaintySelector",
    "take_lowest",
]
