"""k-means, for the selectors that cluster the pool first.

scikit-learn's would take the points off the GPU, faiss's is no dependency of ours, and both draw from generators of
their own; the clusters are as tight as scikit-learn's.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.precision import TILE_ENTRIES, full_float32, square_distance
from lightning_diffal.numerics.sampling import plus_plus, some

# More points than this for each cluster tell hardly more about its center; faiss takes as many.
POINTS_PER_CLUSTER = 256
ROUNDS = 25
# Of so many candidates for each first center the best is taken; scikit-learn has 2 + ln(clusters).
TRIALS = 3


def kmeans(points: Float[Tensor, "n d"], clusters: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """The cluster of each point, in [0, clusters); some may be empty where points coincide.

    k-means++, then Lloyd's rounds on at most 256 points a cluster, drawn at random, until none moves or 25 are over.
    Then every point of the pool goes to its nearest center.

    Cost: O(clusters² d) a round and O(n · clusters · d) once; a copy of the points.
    Reference: Lloyd, Least Squares Quantization in PCM, 1982; Arthur & Vassilvitskii, 2007.
    """
    # Distances are computed from products, which is more exact around the origin.
    points = points - points.mean(dim=0)
    sample = points
    if len(points) > POINTS_PER_CLUSTER * clusters:
        sample = points[some(POINTS_PER_CLUSTER * clusters, len(points), generator, points.device)]

    square = sample.square().sum(dim=1)

    def square_distance_to(places: Int[Tensor, " t"]) -> Float[Tensor, "s t"]:
        return square_distance(square + square[places, None], sample[places] @ sample.T, sample.shape[1]).T

    with full_float32(points.device):
        first = some(1, len(sample), generator, points.device)
        chosen, _ = plus_plus(first, min(clusters, len(sample)), square_distance_to, generator, TRIALS)
        center, home = sample[chosen], torch.full_like(sample[:, 0], -1, dtype=torch.long)
        for _ in range(ROUNDS):
            before, home = home, nearest_center(sample, center)
            if torch.equal(home, before):
                break
            center = moved(sample, home, center)
        return nearest_center(points, center)


def moved(points: Float[Tensor, "n d"], home: Int[Tensor, " n"], center: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    """The mean of each cluster; an empty one keeps its center."""
    members = torch.bincount(home, minlength=len(center))
    # Sorted sums are taken in the same order every time, on a GPU too.
    total = torch.segment_reduce(points[home.argsort(stable=True)], "sum", lengths=members, initial=0)
    return torch.where(members[:, None] > 0, total / members[:, None].clamp_min(1), center)


def nearest_center(points: Float[Tensor, "s d"], center: Float[Tensor, "m d"]) -> Int[Tensor, " s"]:
    half_square = center.square().sum(dim=1) / 2
    height = max(1, TILE_ENTRIES // len(center))
    # One tile for all: between tiles that come and go, answers that stay would leave memory in useless pieces.
    tile = points.new_empty(min(height, len(points)), len(center))
    home = torch.empty_like(points[:, 0], dtype=torch.long)
    for rows, part in zip(points.split(height), home.split(height), strict=True):
        square = torch.addmm(half_square, rows, center.T, alpha=-1, out=tile[: len(rows)])
        torch.argmin(square, dim=1, out=part)
    return home
