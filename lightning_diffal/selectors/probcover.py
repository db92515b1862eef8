"""Ask about the points whose balls cover most points that no label covers yet."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.numerics.kmeans import kmeans
from lightning_diffal.numerics.precision import full_float32, product_rounding, wide_dtype
from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.numerics.tiles import tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.points import PointSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot

# Columns of a tile of distances.
TILE_WIDTH = 2**10
# Points on which the purity is estimated: a standard error of 0.5% at 95%.
PURITY_SAMPLE = 2048


@skip_type_check
@dataclass(frozen=True, kw_only=True, repr=False)
class ProbCoverSelector(PointSelector):
    """Ask about the point whose ball of radius δ holds most points that no labeled or chosen point's ball holds.

    argmax_i |{j uncovered : |x_i - x_j| ≤ δ}|, again and again; a greedy cover reaches 1 - 1/e of the best one. The
    scores are these numbers, negative; ties go to the lower index. No edges are stored: each point is counted once,
    when the query begins, and subtracted once, when it is covered.

    Args:
        radius: δ. By default the largest for which a fraction `purity` of all balls lies within one cluster each, with
            as many clusters by k-means as there are classes. That is a quantile of the distances to the nearest point
            of another cluster: of all points, or of 2,048 drawn at random in a larger pool.
        purity: α of the paper.
        counted: In a larger pool than this, coverage is counted on this many points, drawn at random. Every point
            remains a candidate.
        on: "embeddings", or "features", the fixed ones.

    Needs embeddings, or features. Cost: O(n · min(n, counted) · d) at most twice, however many points are asked for; in
    float64, since float32 does not resolve distances within a tight class far from the origin. Memory: two copies of
    the points, those in float64, and 8 MiB; nothing grows with the number of pairs.
    Reference: Yehuda, Dekel, Hacohen & Weinshall, 2205.11320, Algorithm 1.
    """

    radius: float | None = None
    purity: float = 0.95
    counted: int = 50_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("ProbCoverSelector", "counted", self.counted)
        if self.radius is not None and not self.radius >= 0:
            raise ValueError(f"ProbCoverSelector(radius={self.radius!r}): a distance of at least 0 is needed, or None.")
        if not 0 < self.purity < 1:
            raise ValueError(f"ProbCoverSelector(purity={self.purity!r}): a fraction between 0 and 1 is needed.")

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        given, exponent = snapshot.scaled_points(self.on)
        points = given.to(wide_dtype(given.device))
        points = points - points.mean(dim=0)  # products are more exact around the origin
        radius = None if self.radius is None else math.ldexp(self.radius, -exponent)
        with full_float32(points.device):
            if radius is None:
                with timer.stage("radius"):
                    cluster = kmeans(points, snapshot.num_classes, generator)
                    radius = pure_radius(points, cluster, self.purity, generator)
            counted = torch.arange(len(points), device=points.device)
            if len(points) > self.counted:
                counted = sample_without_replacement(self.counted, len(points), generator, points.device)
            with timer.stage("counts"):
                cover = Cover(points, counted, radius)
                cover.add(snapshot.labeled)
            cover.gain[snapshot.labeled] = -1
            chosen, gains = cover.gain.new_empty(size), cover.gain.new_empty(size)
            for number in timer.track_stage("query", range(size)):
                # argmax gives the first of equal ones, by its documentation.
                best = cover.gain.argmax(dim=0, keepdim=True)
                chosen[number] = best[0]
                gains[number] = cover.gain[best[0]]
                cover.add(best)
                cover.gain[best] = -1
        return Query.of(chosen, -gains.to(given.dtype))


class Cover:
    """How many uncovered points the ball around every point holds, as balls are added."""

    def __init__(self, points: Float[Tensor, "n d"], counted: Int[Tensor, " m"], radius: float) -> None:
        self.points, self.uncovered, self.radius = points, counted, radius
        # |x|² less what the rounding of |x|² + |y|² - 2x·y can make.
        self.square = points.square().sum(dim=1) * (1 - product_rounding(points.shape[1], points.dtype))
        self.gain = torch.zeros_like(counted[:1]).repeat(len(points))
        all_rows = torch.arange(len(points), device=points.device)
        if len(counted) < len(all_rows):
            self.count(all_rows, counted, 1)
        else:
            self.count_pairs(all_rows)

    def add(self, centers: Int[Tensor, " b"]) -> None:
        """Cover what the balls around `centers` hold, and subtract it from the counts of all balls that hold it too."""
        held = torch.zeros_like(self.uncovered, dtype=torch.bool)
        for block in centers.split(tile_height(len(held))):
            held |= self.within(self.uncovered, block, self.radius).any(dim=1)
        covered, self.uncovered = self.uncovered[held], self.uncovered[~held]
        near = torch.zeros_like(self.square, dtype=torch.bool)
        for block in centers.split(tile_height(len(near))):
            # Balls that share a point are at most two radii apart; rounding must not lose one.
            near |= self.within(slice(None), block, 2.001 * self.radius).any(dim=1)
        self.count(near.nonzero()[:, 0], covered, -1)

    def count(self, rows: Int[Tensor, " r"], held: Int[Tensor, " h"], sign: int) -> None:
        """Add `sign` to the gain of `rows` for each of `held` within their balls."""
        for others in held.split(TILE_WIDTH):
            for block in rows.split(tile_height(len(others))):
                self.gain[block] += sign * self.within(block, others, self.radius).sum(dim=1).long()

    def count_pairs(self, all_rows: Int[Tensor, " n"]) -> None:
        """Count all points within the balls of all points: distances are symmetric, so half of the pairs are enough."""
        for start in range(0, len(all_rows), TILE_WIDTH):
            others = all_rows[start : start + TILE_WIDTH]
            self.count(others, others, 1)
            for block in all_rows[start + TILE_WIDTH :].split(tile_height(len(others))):
                held = self.within(block, others, self.radius)
                self.gain[block] += held.sum(dim=1).long()
                self.gain[others] += (torch.ones_like(held[:, 0]) @ held).long()  # three times as fast as a sum

    def within(self, rows: Int[Tensor, " r"] | slice, others: Int[Tensor, " m"], radius: float) -> Float[Tensor, "r m"]:
        """1 where x and y are at most `radius` apart: |x|² + |y|² - 2x·y ≤ δ², give or take the rounding of that.

        In floating point, since sums of booleans are several times slower.
        """
        distance = torch.addmm(self.square[others], self.points[rows], self.points[others].T, alpha=-2)
        return distance.le_((radius**2 - self.square[rows])[:, None])


def pure_radius(
    points: Float[Tensor, "n d"], cluster: Int[Tensor, " n"], purity: float, generator: torch.Generator
) -> float:
    """The largest δ for which the balls around a fraction `purity` of the points hold points of one cluster only.

    A ball is pure up to the distance of the nearest point of another cluster, so δ is a quantile of those.
    """
    sample = sample_without_replacement(PURITY_SAMPLE, len(points), generator, points.device)
    nearest = torch.full_like(points[sample, 0], float("inf"))
    height = tile_height(len(sample))
    for others, other_cluster in zip(points.split(height), cluster.split(height), strict=True):
        distance = torch.cdist(points[sample], others)
        distance.masked_fill_(cluster[sample, None] == other_cluster, float("inf"))
        torch.minimum(nearest, distance.amin(dim=1), out=nearest)
    return float(nearest.sort().values[len(sample) - math.ceil(purity * len(sample))])
