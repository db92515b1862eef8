"""The backends of the neighbor search. A new one is a file with a `search` function and an entry in BACKENDS."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from lightning_diffal.arguments import Progress, skip_type_check
from lightning_diffal.distributed import Ranks
from lightning_diffal.graph.knn.approximate_search import search_approximate
from lightning_diffal.graph.knn.candidates import EXTRA_CANDIDATES, Candidates
from lightning_diffal.graph.knn.cluster_search import search_cluster
from lightning_diffal.graph.knn.faiss_search import search_faiss
from lightning_diffal.graph.knn.torch_search import search_torch

Backend: TypeAlias = Literal["auto", "exact", "torch", "cluster", "faiss", "approximate"]

log = logging.getLogger(__name__)


# For these, a backend is chosen by measurement.
CHOSEN = ("auto", "exact")
# From n² d of this on, backend="auto" is approximate on the CPU: there the exact search of a pool without structure
# takes more than a quarter of an hour of one core (docs/speed.md). In up to APPROXIMATE_ABOVE dimensions it never is.
APPROXIMATE_WORK, APPROXIMATE_ABOVE = 1e14, 160


def never_preferred(device: torch.device, points: int, dimensions: int) -> str | None:
    return None


@dataclass(frozen=True)
class KnnBackend:
    """One way to find candidates for the nearest neighbors.

    Args:
        name: As in `build_graph(backend=...)`. The pip extra that installs it has the same name.
        search: Called as `search(points, count, progress, ranks)`. Whatever its precision, the graph is the same.
        exact: False for a search that may miss neighbors; its candidates have a `recall`.
        module: The module it imports, if any.
        install_note: Appended to the pip command in the message about a missing module.
        max_candidates_on_cuda: The largest `count` it supports on CUDA.
        preferred: Given device, points and dimensions, the reason why backend="auto" takes it, or None.
    """

    name: str
    search: Callable[[Tensor, int, Progress, Ranks], Candidates]
    exact: bool = True
    module: str | None = None
    install_note: str = ""
    max_candidates_on_cuda: int | None = None
    preferred: Callable[[torch.device, int, int], str | None] = never_preferred

    def supports(self, count: int, device: torch.device) -> bool:
        return device.type != "cuda" or self.max_candidates_on_cuda is None or count <= self.max_candidates_on_cuda

    def can_be_imported(self) -> bool:
        try:
            if self.module is not None:
                import_module(self.module)
        except (ImportError, OSError, ValueError) as error:
            # Not installed, or pip's cached wheel was built for another torch.
            log.debug("build_graph: %s cannot be imported: %s", self.module, error)
            return False
        return True


def prefer_cluster(device: torch.device, points: int, dimensions: int) -> str | None:
    """By measurement (benchmarks/bench_graph_backends.py)."""
    if device.type == "cuda":
        return "its kernel needs no memory for distances"
    return "a kd-tree is the fastest up to 6 dimensions" if device.type == "cpu" and dimensions <= 6 else None


def prefer_approximate(device: torch.device, points: int, dimensions: int) -> str | None:
    """By measurement (benchmarks/bench_approximate.py)."""
    if device.type != "cpu" or dimensions <= APPROXIMATE_ABOVE or points**2 * dimensions < APPROXIMATE_WORK:
        return None
    return f"n² d is at least {APPROXIMATE_WORK:.0e}"


TORCH = KnnBackend("torch", search_torch)
CLUSTER = KnnBackend(
    "cluster",
    search_cluster,
    module="torch_cluster",
    install_note=", with --no-build-isolation and after torch: see docs/usage.md",
    max_candidates_on_cuda=100,  # its kernel keeps the best in an array of this size
    preferred=prefer_cluster,
)
FAISS = KnnBackend("faiss", search_faiss, module="faiss")
APPROXIMATE = KnnBackend("approximate", search_approximate, exact=False, preferred=prefer_approximate)
BACKENDS = {backend.name: backend for backend in (TORCH, CLUSTER, FAISS, APPROXIMATE)}


@skip_type_check
def check_backend(caller: str, backend: str) -> None:
    """Refuse a backend that does not exist or is not installed."""
    if isinstance(backend, str) and backend in CHOSEN:
        return
    if not isinstance(backend, str) or backend not in BACKENDS:
        names = ", ".join(f'"{name}"' for name in BACKENDS)
        raise ValueError(f'{caller}(backend={backend!r}): "auto", "exact" or one of {names} is needed.')
    chosen = BACKENDS[backend]
    if chosen.module is not None and find_spec(chosen.module) is None:
        raise ModuleNotFoundError(
            f"{caller}(backend={backend!r}): {chosen.module} is not installed. "
            f"`pip install lightning-diffal[{backend}]` installs it{chosen.install_note}. "
            'backend="torch" gives the same graph without it.'
        )


@skip_type_check
def resolve_backend(backend: Backend, neighbors: int, device: torch.device, points: int, dimensions: int) -> KnnBackend:
    """The backend asked for, if it supports that many neighbors; else the preferred one of those installed.

    For "exact" the preferred of the exact ones, for "auto" of all.
    """
    check_backend("build_graph", backend)
    count = neighbors + 1 + EXTRA_CANDIDATES
    if backend not in CHOSEN:
        chosen = BACKENDS[backend]
        if not chosen.supports(count, device):
            limit = (chosen.max_candidates_on_cuda or 0) - 1 - EXTRA_CANDIDATES
            raise ValueError(
                f'build_graph(neighbors={neighbors}, backend="{backend}"): {chosen.module} finds at most {limit} '
                'neighbors on CUDA. backend="torch" has no such limit.'
            )
        return chosen
    chosen, reason = TORCH, "the fastest by measurement"
    for candidate in BACKENDS.values():
        preference = candidate.preferred(device, points, dimensions)
        if backend == "exact" and not candidate.exact:
            continue
        if preference is not None and candidate.supports(count, device) and candidate.can_be_imported():
            chosen, reason = candidate, preference
    log.debug("build_graph: backend %r for d=%d on %s: %s", chosen.name, dimensions, device, reason)
    if not chosen.exact:
        log.info(
            'build_graph: backend="auto" is %r for %d points in %d dimensions: %s. backend="exact" misses none.',
            *(chosen.name, points, dimensions, reason),
        )
    return chosen
