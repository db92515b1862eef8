"""A backend of the tests: the search of large pools, on pools of any size."""

from functools import partial

from lightning_diffal.graph.knn.registry import BACKENDS, KnnBackend
from lightning_diffal.graph.knn.torch_search import search_torch

PRUNED = KnnBackend("pruned", partial(search_torch, prune_from=2, prune_up_to=1.0))


def register_pruned(monkeypatch):
    """Let `build_graph` accept backend="pruned"."""
    monkeypatch.setitem(BACKENDS, "pruned", PRUNED)
