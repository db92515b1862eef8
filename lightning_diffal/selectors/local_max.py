"""Ask about a batch of points with low scores, no two of which are neighbors."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.graph.neighbor_graph import NeighborGraph, check_neighbors
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import BatchSelector, ScoreSelector
from lightning_diffal.selectors.query import Query, take_lowest
from lightning_diffal.selectors.snapshot import Snapshot


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class LocalMaxSelector(BatchSelector):
    """Ask where a score is better than at all neighbors on the graph: a batch without redundant points.

    A point is a candidate if no unlabeled neighbor, in either direction, has a lower score; of equal scores the lower
    index counts as lower. The best candidates are asked. If there are too few, all are taken and the rest of the
    pool is searched in the same way.

    Args:
        of: The selector whose score it is, such as `EntropySelector()`, `PoissonSelector()` or `DiffusionSelector()`.
        neighbors: K of the graph. By default ⌈2 ln n⌉.

    Needs embeddings and what the score needs. Cost: `build_graph`, that of the score, and O(edges), once as a rule.
    Reference: Chapman et al., 2307.10495, LocalMax.
    """

    of: ScoreSelector
    neighbors: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.of, ScoreSelector):
            raise ValueError(
                f"LocalMaxSelector(of={self.of!r}): a selector with a `score` of all points is needed, a ScoreSelector."
            )
        check_neighbors("LocalMaxSelector", self.neighbors)

    def check_pool(self, num_points: int) -> None:
        check_neighbors("LocalMaxSelector", self.neighbors, num_points)
        self.of.check_pool(num_points)

    @property
    def needs(self) -> frozenset[str]:
        return self.of.needs | {"embeddings"}

    @property
    def passes(self) -> int | None:
        return self.of.passes

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        scores = self.of.score(snapshot, timer)
        graph = snapshot.symmetric_graph(self.neighbors, timer)
        with timer.stage("query"):
            return spread_lowest(scores, snapshot.unlabeled, size, graph)


def spread_lowest(scores: Float[Tensor, " n"], unlabeled: Int[Tensor, " u"], size: int, graph: NeighborGraph) -> Query:
    """The lowest scores among those that are lower than at all neighbors."""
    last = len(scores)  # of points that are labeled or chosen
    rank = torch.full_like(graph.crow[:-1], last)
    rank[take_lowest(scores, unlabeled, len(unlabeled)).indices] = torch.arange(len(unlabeled), device=rank.device)
    chosen = unlabeled[:0]
    while len(chosen) < size:
        lowest = (local_lowest(rank, graph) & (rank < last)).nonzero()[:, 0]
        chosen = torch.cat([chosen, lowest[rank[lowest].argsort()]])
        rank[lowest] = last
    return Query.of(chosen[:size], scores[chosen[:size]])


def local_lowest(rank: Int[Tensor, " n"], graph: NeighborGraph) -> Bool[Tensor, " n"]:
    """Where the rank is lower than at all neighbors on a symmetric graph."""
    around = torch.full_like(rank, len(rank))
    around.scatter_reduce_(0, graph.source, rank[graph.col], "amin")
    return rank < around
