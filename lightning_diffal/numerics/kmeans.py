"""k-means, for the selectors that cluster the pool and for the cells of the neighbor search.

scikit-learn's would move the points off the GPU, faiss's is an optional dependency, and both draw from generators of
their own; the clusters are as tight as scikit-learn's.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.precision import distance_from_product, full_float32
from lightning_diffal.numerics.sampling import kmeans_plus_plus, sample_without_replacement
from lightning_diffal.numerics.tiles import tile_height

# More points for each cluster hardly improve the centers; faiss uses the same number.
POINTS_PER_CLUSTER = 256
MAX_ITERATIONS = 25
# Candidates for each initial center, of which the best is kept; scikit-learn has 2 + ln(clusters).
TRIALS = 3


def kmeans(points: Float[Tensor, "n d"], clusters: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """The cluster of each point, in [0, clusters); clusters may be empty where points coincide.

    k-means++, then Lloyd's iterations on at most 256 points a cluster, drawn at random, until no assignment changes or
    25 are done. Then every point of the pool is assigned to its nearest center.

    Cost: O(clusters² d) an iteration and O(n · clusters · d) once; a copy of the points.
    Reference: Lloyd, Least Squares Quantization in PCM, 1982; Arthur & Vassilvitskii, 2007.
    """
    # Distances are computed from products, which is more exact around the origin.
    points = points - points.mean(dim=0)
    sample, sample_size = points, POINTS_PER_CLUSTER * clusters
    if len(points) > sample_size:
        sample = points[sample_without_replacement(sample_size, len(points), generator, points.device)]
    square = sample.square().sum(dim=1)

    def distance_to(rows: Int[Tensor, " t"]) -> Float[Tensor, "s t"]:
        return distance_from_product(square + square[rows, None], sample[rows] @ sample.T, sample.shape[1]).T

    with full_float32(points.device):
        first = sample_without_replacement(1, len(sample), generator, points.device)
        chosen, _ = kmeans_plus_plus(first, min(clusters, len(sample)), distance_to, generator, TRIALS)
        return nearest_center(points, lloyd(sample, sample[chosen], MAX_ITERATIONS))


def lloyd(points: Float[Tensor, "n d"], center: Float[Tensor, "k d"], iterations: int) -> Float[Tensor, "k d"]:
    """The centers after `iterations` of k-means, or fewer once no assignment changes."""
    assignment = torch.full_like(points[:, 0], -1, dtype=torch.long)
    for _ in range(iterations):
        before, assignment = assignment, nearest_center(points, center)
        if torch.equal(assignment, before):
            break
        center = updated_centers(points, assignment, center)
    return center


def updated_centers(
    points: Float[Tensor, "n d"], assignment: Int[Tensor, " n"], center: Float[Tensor, "k d"]
) -> Float[Tensor, "k d"]:
    """The mean of each cluster; an empty one keeps its center."""
    size = torch.bincount(assignment, minlength=len(center))
    # Sorted sums are taken in the same order every time, on a GPU too.
    total = torch.segment_reduce(points[assignment.argsort(stable=True)], "sum", lengths=size, initial=0)
    return torch.where(size[:, None] > 0, total / size[:, None].clamp_min(1), center)


def nearest_center(points: Float[Tensor, "s d"], center: Float[Tensor, "m d"]) -> Int[Tensor, " s"]:
    """The cluster assignment: for each point the nearest center."""
    half_square = center.square().sum(dim=1) / 2
    height = tile_height(len(center))
    # One tile for all parts: allocating one for each would fragment memory between results that stay.
    tile = points.new_empty(min(height, len(points)), len(center))
    assignment = torch.empty_like(points[:, 0], dtype=torch.long)
    for rows, part in zip(points.split(height), assignment.split(height), strict=True):
        half_distance = torch.addmm(half_square, rows, center.T, alpha=-1, out=tile[: len(rows)])
        torch.argmin(half_distance, dim=1, out=part)
    return assignment
