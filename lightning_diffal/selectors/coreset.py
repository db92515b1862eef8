"""Ask about the points that are farthest from everything asked before."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.precision import full_float32, product_rounding, times_two_to
from lightning_diffal.numerics.tiles import DIFFERENCE_BYTES, TILE_ENTRIES
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import Query
from lightning_diffal.selectors.score import in_order
from lightning_diffal.selectors.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class CoresetSelector:
    """Ask about the point farthest from all labeled and chosen ones, again and again: greedy k-center.

    argmax_i min_{j labeled or chosen} |x_i - x_j|, within twice the smallest covering radius there is. The scores are
    these distances, negative. Ties go to the lower index. Without any label the first is the nearest to the mean, its
    distance infinite.

    Needs embeddings. Cost: O(n d) for every labeled and chosen point, most of it in matrix products. Memory: a copy of
    the embeddings.
    Reference: Sener & Savarese, 1708.00489, Algorithm 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def __call__(self, snapshot: Snapshot, size: int, *, timer: StageTimer | None = None) -> Query:
        timer = timer or StageTimer()
        size = min(size, snapshot.num_unlabeled)
        if size == 0:
            return Query.empty(snapshot.points)
        with full_float32(snapshot.labels.device):
            with timer.stage("distances"):
                gaps = Gaps(snapshot.points, snapshot.labeled)
            # Made before, for what stays between larger tensors that come and go leaves memory in useless pieces.
            chosen = torch.empty_like(snapshot.labels[:size], dtype=torch.long)
            distances = gaps.distance.new_empty(size)
            for place in timer.track_stage("query", range(size)):
                farthest = gaps.farthest()
                chosen[place] = farthest[0]
                distances[place] = gaps.distance[farthest[0]]
                gaps.close(farthest)
        return in_order(chosen, times_two_to(snapshot.exponent, -distances))


class Gaps:
    """How far every point is from the nearest center, -1 for the centers themselves.

    Products find out who may be near a center, differences say how near: exactly 0 where points coincide.
    """

    def __init__(self, points: Float[Tensor, "n d"], centers: Int[Tensor, " m"]) -> None:
        self.points, self.any = points, len(centers) > 0
        self.around_mean = points - points.mean(dim=0)  # products are more exact around the origin
        self.rounding = product_rounding(points.shape[1], points.dtype)
        # |x|² less what the rounding of |x|² + |y|² - 2x·y can make.
        self.square = self.around_mean.square().sum(dim=1) * (1 - self.rounding)
        self.distance = torch.full_like(self.square, float("inf"))
        if self.any:
            self.close_all(centers)

    def close_all(self, centers: Int[Tensor, " m"]) -> None:
        """Make points centers, a tile of rows and centers at a time; no center so far."""
        center, square = self.around_mean[centers], self.square[centers]
        height = max(1, TILE_ENTRIES // len(centers))
        tile = square.new_empty(min(height, len(self.points)), len(centers))
        for start in range(0, len(self.points), height):
            rows = self.around_mean[start : start + height]
            least = torch.addmm(square, rows, center.T, alpha=-2, out=tile[: len(rows)])
            lowest, place = least.min(dim=1)
            self.narrow(start + torch.arange(len(rows), device=rows.device), centers[place])
            # So low may that of the nearest be, if rounding has hidden it.
            enough = lowest + 3 * self.rounding * (self.square[start : start + height] + square[place])
            others = least.scatter_(1, place[:, None], float("inf"))
            doubtful = (others.amin(dim=1) <= enough).nonzero()[:, 0]
            row, which = (others[doubtful] <= enough[doubtful, None]).nonzero(as_tuple=True)
            self.narrow(start + doubtful[row], centers[which])
        self.distance[centers] = -1

    def narrow(self, rows: Int[Tensor, " p"], centers: Int[Tensor, " p"]) -> None:
        """Take each row at most as far as its center is by differences."""
        height = max(1, DIFFERENCE_BYTES // (self.points.element_size() * self.points.shape[1]))
        for row, center in zip(rows.split(height), centers.split(height), strict=True):
            distance = direct(self.points[row][:, None], self.points[center][:, None])[:, 0, 0]
            self.distance.scatter_reduce_(0, row, distance, "amin")

    def farthest(self) -> Int[Tensor, " 1"]:
        """The first of those with the widest gap, as argmax documents; without any center, that nearest the mean."""
        if self.any:
            return self.distance.argmax(dim=0, keepdim=True)
        return direct(self.points, self.points.mean(dim=0, keepdim=True))[:, 0].argmin(dim=0, keepdim=True)

    def close(self, center: Int[Tensor, " 1"]) -> None:
        """Make a point a center."""
        self.any = True
        least = torch.addmv(self.square, self.around_mean, self.around_mean[center[0]], alpha=-2)
        nearer = (least <= self.distance.square() - self.square[center]).nonzero()[:, 0]
        self.narrow(nearer, center.expand(len(nearer)))
        self.distance[center] = -1  # behind all others, where it coincides with them too


def direct(x: Float[Tensor, "*b r d"], y: Float[Tensor, "*b m d"]) -> Float[Tensor, "*b r m"]:
    """|x - y| from differences."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
