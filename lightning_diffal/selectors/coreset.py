"""Ask about the points that are farthest from everything asked before."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.precision import full_float32, ldexp, product_rounding
from lightning_diffal.numerics.tiles import DIFFERENCE_BYTES, tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.points import PointSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, repr=False)
class CoresetSelector(PointSelector):
    """Ask about the point farthest from all labeled and chosen ones, again and again: greedy k-center.

    argmax_i min_{j labeled or chosen} |x_i - x_j|, within twice the smallest covering radius there is. The scores are
    these distances, negative. Ties go to the lower index. Without any label the first is the nearest to the mean, its
    distance infinite.

    Args:
        on: "embeddings", or "features", the fixed ones.

    Needs embeddings, or features. Cost: O(n d) for every labeled and chosen point, most of it in matrix products.
    Memory: a copy of the points.
    Reference: Sener & Savarese, 1708.00489, Algorithm 1.
    """

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        points, exponent = snapshot.scaled_points(self.on)
        with full_float32(snapshot.labels.device):
            with timer.stage("distances"):
                nearest = NearestCenter(points, snapshot.labeled)
            # Allocated first: small results between large temporary tensors would fragment the memory.
            chosen = torch.empty_like(snapshot.labels[:size], dtype=torch.long)
            distances = nearest.distance.new_empty(size)
            for number in timer.track_stage("query", range(size)):
                farthest = nearest.farthest()
                chosen[number] = farthest[0]
                distances[number] = nearest.distance[farthest[0]]
                nearest.add(farthest)
        return Query.of(chosen, ldexp(-distances, exponent))


class NearestCenter:
    """The distance of every point to the nearest center, -1 for the centers themselves.

    Products find the points that may be near a center, differences give the distance: exactly 0 where points coincide.
    """

    def __init__(self, points: Float[Tensor, "n d"], centers: Int[Tensor, " m"]) -> None:
        self.points, self.has_centers = points, len(centers) > 0
        self.around_mean = points - points.mean(dim=0)  # products are more exact around the origin
        self.rounding = product_rounding(points.shape[1], points.dtype)
        # |x|² less what the rounding of |x|² + |y|² - 2x·y can make.
        self.square = self.around_mean.square().sum(dim=1) * (1 - self.rounding)
        self.distance = torch.full_like(self.square, float("inf"))
        if self.has_centers:
            self.add_first(centers)

    def add_first(self, centers: Int[Tensor, " m"]) -> None:
        """Add the first centers, a tile of rows and centers at a time."""
        center, square = self.around_mean[centers], self.square[centers]
        height = tile_height(len(centers))
        tile = square.new_empty(min(height, len(self.points)), len(centers))
        for start in range(0, len(self.points), height):
            rows = self.around_mean[start : start + height]
            bound = torch.addmm(square, rows, center.T, alpha=-2, out=tile[: len(rows)])
            lowest, column = bound.min(dim=1)
            self.reduce(start + torch.arange(len(rows), device=rows.device), centers[column])
            # The true nearest center is below this, whatever the rounding.
            limit = lowest + 3 * self.rounding * (self.square[start : start + height] + square[column])
            others = bound.scatter_(1, column[:, None], float("inf"))
            ambiguous = (others.amin(dim=1) <= limit).nonzero()[:, 0]
            row, column = (others[ambiguous] <= limit[ambiguous, None]).nonzero(as_tuple=True)
            self.reduce(start + ambiguous[row], centers[column])
        self.distance[centers] = -1

    def reduce(self, rows: Int[Tensor, " p"], centers: Int[Tensor, " p"]) -> None:
        """Lower the distance of each row to that of its center, if it is nearer."""
        height = tile_height(self.points.element_size() * self.points.shape[1], DIFFERENCE_BYTES)
        for row, center in zip(rows.split(height), centers.split(height), strict=True):
            distance = exact_distance(self.points[row][:, None], self.points[center][:, None])[:, 0, 0]
            self.distance.scatter_reduce_(0, row, distance, "amin")

    def farthest(self) -> Int[Tensor, " 1"]:
        """The point with the largest distance, the first of equal ones; without any center, that nearest the mean."""
        if self.has_centers:
            return self.distance.argmax(dim=0, keepdim=True)
        return exact_distance(self.points, self.points.mean(dim=0, keepdim=True))[:, 0].argmin(dim=0, keepdim=True)

    def add(self, center: Int[Tensor, " 1"]) -> None:
        self.has_centers = True
        bound = torch.addmv(self.square, self.around_mean, self.around_mean[center[0]], alpha=-2)
        nearer = (bound <= self.distance.square() - self.square[center]).nonzero()[:, 0]
        self.reduce(nearer, center.expand(len(nearer)))
        self.distance[center] = -1  # below points that coincide with it


def exact_distance(x: Float[Tensor, "*b r d"], y: Float[Tensor, "*b m d"]) -> Float[Tensor, "*b r m"]:
    """|x - y| from differences."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
