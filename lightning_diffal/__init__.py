"""Diffusion-based deep active learning for PyTorch Lightning."""

from lightning_diffal.diffusion.diffuse import diffuse as diffuse
from lightning_diffal.graph.neighbor_graph import NeighborGraph as NeighborGraph
from lightning_diffal.graph.neighbor_graph import build_graph as build_graph
from lightning_diffal.labels import UNLABELED as UNLABELED
from lightning_diffal.selectors.diffusion import DiffusionSelector as DiffusionSelector
from lightning_diffal.selectors.diffusion import batch_query as batch_query
from lightning_diffal.selectors.selector import Query as Query
from lightning_diffal.selectors.selector import Selector as Selector
from lightning_diffal.selectors.selector import Snapshot as Snapshot

__version__ = "0.1.0"
