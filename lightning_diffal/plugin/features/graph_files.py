"""Graphs of fixed features in the folder of a run: built once, read back in later rounds."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.nearest_neighbors import default_neighbors
from lightning_diffal.graph.knn.registry import Backend
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.plugin.features.files import read_arrays, write_arrays
from lightning_diffal.plugin.features.fingerprint import hash_of

VERSION: Final = 1


class GraphFolder:
    """`build_graph` that looks into a folder first.

    Args:
        folder: None always builds.
        name: What the files are called after.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self.folder, self.name = folder, name

    def __call__(
        self,
        features: Tensor,
        neighbors: int | None,
        *,
        backend: Backend = "auto",
        symmetric: bool = False,
        progress: Progress = iter,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> NeighborGraph:
        """The graph of the features, from its file if that holds the graph of the very same numbers.

        Rank 0 alone reads and writes. Cost of reading: a hash of the features and 8 bytes an edge.
        """
        neighbors = neighbors or default_neighbors(len(features))
        path, about = None, ""
        if self.folder is not None and ranks.rank == 0:
            path = self.folder / f"{self.name}_graph_{neighbors}{'_symmetric' * symmetric}.npz"
            about = json.dumps({"version": VERSION, "features": hash_of(features), "backend": backend})
        stored = None if path is None else read_graph(path, about)
        if ranks.broadcast(torch.tensor(stored is not None)):
            return shared_graph(stored, ranks, features.device)
        graph = build_graph(features, neighbors, backend=backend, symmetric=symmetric, progress=progress, ranks=ranks)
        if path is not None:
            try:
                write_graph(path, about, graph)
            except OSError as error:
                rank_zero_warn(f"{path} cannot be written ({error}). The graph is built again in the next round.")
        return graph


def read_graph(path: Path, about: str) -> NeighborGraph | None:
    """The graph in a file, None if that is not there, is damaged, or holds another one."""
    arrays = read_arrays(path, about, ("crow", "col", "weight"))
    if arrays is None:
        return None
    crow, col, weight = (torch.from_numpy(array) for array in arrays)
    try:
        return NeighborGraph(crow, col.long(), weight)
    except ValueError:
        return None


def write_graph(path: Path, about: str, graph: NeighborGraph) -> None:
    narrow = torch.int32 if graph.num_nodes < 2**31 else torch.int64
    parts: dict[str, Any] = {"crow": graph.crow, "col": graph.col.to(narrow), "weight": graph.weight}
    write_arrays(path, about, {name: np.asarray(part.cpu()) for name, part in parts.items()})


def shared_graph(graph: NeighborGraph | None, ranks: Ranks, device: torch.device) -> NeighborGraph:
    """The graph of rank 0 on every rank."""
    if ranks.single:
        assert graph is not None
        return NeighborGraph(graph.crow.to(device), graph.col.to(device), graph.weight.to(device))
    sizes = [0, 0, 0] if graph is None else [len(graph.crow), len(graph.col), graph.weight.dtype == torch.float64]
    nodes, edges, wide = ranks.broadcast(torch.tensor(sizes)).tolist()
    empty = (
        torch.empty(nodes, dtype=torch.int64),
        torch.empty(edges, dtype=torch.int64),
        torch.empty(edges, dtype=torch.float64 if wide else torch.float32),
    )
    parts = empty if graph is None else (graph.crow, graph.col, graph.weight)
    return NeighborGraph(*(ranks.broadcast(part).to(device) for part in parts))
