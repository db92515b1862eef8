"""Ask about the most typical point of each cluster that has no label yet."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.graph.knn.refine import squared_distances
from lightning_diffal.graph.knn.torch_search import search_torch
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.kmeans import kmeans
from lightning_diffal.numerics.precision import full_float32, ldexp
from lightning_diffal.numerics.tiles import DIFFERENCE_BYTES, tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.points import PointSelector
from lightning_diffal.selectors.query import Query, take_lowest
from lightning_diffal.selectors.snapshot import Snapshot

# Smaller clusters have no typical point and come last; the number is the authors'.
MIN_CLUSTER_SIZE = 5


@skip_type_check
@dataclass(frozen=True, kw_only=True, repr=False)
class TypiClustSelector(PointSelector):
    """Ask about the most typical point of the largest clusters without a label.

    The pool is divided into as many clusters as there will be labels. Those with the fewest labels come first, of
    equals the largest, each with its point of the highest typicality ((1/K) Σ_{j in K-NN(i)} |x_i - x_j|)⁻¹, neighbors
    taken within the cluster; then again from the first, until the query is full. The scores are the mean distances to K
    neighbors.

    Args:
        neighbors: K, at most the size of the cluster less one.
        max_clusters: No more clusters than this, as labels become many.
        on: "embeddings", or "features", the fixed ones.

    Needs embeddings, or features. Cost: k-means (see `kmeans`), and a search within each cluster that is asked about.
    Memory: two copies of the embeddings, and that of the search in the largest such cluster.
    Reference: Hacohen, Dekel & Weinshall, 2202.02794, Algorithm 1; the numbers are those of their code.
    """

    neighbors: int = 20
    max_clusters: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("TypiClustSelector", "neighbors", self.neighbors)
        check_count("TypiClustSelector", "max_clusters", self.max_clusters)

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        points, exponent = snapshot.scaled_points(self.on)
        clusters = min(len(snapshot.labeled) + size, self.max_clusters)
        with timer.stage("clusters"):
            cluster_of = kmeans(points, clusters, generator)
        visits = cluster_order(cluster_of, snapshot.labels, clusters, size)
        members = cluster_of.argsort(stable=True).split(torch.bincount(cluster_of, minlength=clusters).tolist())
        queries = []
        for cluster in timer.track_stage("query", sorted(set(visits))):
            rows = members[cluster]
            unlabeled = (snapshot.labels[rows] == UNLABELED).nonzero()[:, 0]
            query = take_lowest(mean_distance(points[rows], self.neighbors), unlabeled, visits.count(cluster))
            queries.append(Query.of(rows[query.indices], query.scores))
        by_cluster = Query.cat(queries)
        # The inverse of the permutation that sorts the visits by cluster.
        order = torch.tensor(visits, device=points.device).argsort(stable=True).argsort()
        return Query.of(by_cluster.indices[order], ldexp(by_cluster.scores[order], exponent))


def cluster_order(cluster_of: Int[Tensor, " n"], labels: Int[Tensor, " n"], clusters: int, size: int) -> list[int]:
    """The cluster that each point of the query is taken from."""
    members = torch.bincount(cluster_of, minlength=clusters).tolist()
    labeled = torch.bincount(cluster_of[labels != UNLABELED], minlength=clusters).tolist()
    order = sorted(range(clusters), key=lambda cluster: (labeled[cluster], -members[cluster], cluster))
    large = [cluster for cluster in order if members[cluster] >= MIN_CLUSTER_SIZE]
    small = [cluster for cluster in order if members[cluster] < MIN_CLUSTER_SIZE]
    visits: list[int] = []
    for group in (large, small):
        unlabeled = {cluster: members[cluster] - labeled[cluster] for cluster in group}
        for taken in range(max(unlabeled.values(), default=0)):
            visits += [cluster for cluster in group if unlabeled[cluster] > taken]
            if len(visits) >= size:
                return visits[:size]
    return visits


def mean_distance(points: Float[Tensor, "m d"], neighbors: int) -> Float[Tensor, " m"]:
    """The mean distance of each point to its nearest neighbors: the inverse of its typicality."""
    neighbors = min(neighbors, len(points) - 1)
    if neighbors == 0:
        return torch.zeros_like(points[:, 0])
    with full_float32(points.device):
        # The point itself is among them, at distance 0, or enough copies of it at distance 0.
        found = search_torch((points - points.mean(dim=0)).float(), neighbors + 1, iter)
    rows, nearest = found.rows, found.neighbors
    mean = torch.zeros_like(points[:, 0])
    height = tile_height(8 * nearest.shape[1] * points.shape[1], DIFFERENCE_BYTES)
    for block, neighbor in zip(rows.split(height), nearest.split(height), strict=True):
        distance = squared_distances(points[block][:, None], points[neighbor]).sqrt_()
        mean[block] = distance.sum(dim=1).div_(neighbors).to(mean.dtype)
    return mean
