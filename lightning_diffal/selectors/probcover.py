"""Ask about the points whose surroundings hold most of what no label covers yet."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.numerics.kmeans import kmeans
from lightning_diffal.numerics.precision import full_float32, product_rounding, wide_dtype
from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.numerics.tiles import TILE_ENTRIES
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import Query
from lightning_diffal.selectors.score import in_order
from lightning_diffal.selectors.snapshot import Snapshot

# Distances of a row held at a time: such tiles stay in the cache.
TILE_WIDTH = 2**10
# Points whose nearest stranger is looked for: the purity they give has a standard error of 0.5% at 95%.
JUDGED = 2048


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class ProbCoverSelector:
    """Ask about the point whose ball of radius δ holds most points that no labeled or chosen point's ball holds.

    argmax_i |{j uncovered : |x_i - x_j| ≤ δ}|, again and again; a greedy cover reaches 1 - 1/e of the best one. The
    scores are these numbers, negative; ties go to the lower index. Counts need no edges: each point is counted once,
    when the query begins, and taken off once, when it is covered.

    Args:
        radius: δ. By default the largest for which a share `purity` of all balls lies within one cluster each, with as
            many clusters by k-means as there are classes. That is a quantile of the distances to the nearest point of
            another cluster: of all points, or of 2,048 drawn at random in a larger pool.
        purity: α of the paper.
        counted: In a larger pool than this, coverage is counted on so many points drawn at random. Every point remains
            a candidate.

    Needs embeddings. Cost: O(n · min(n, counted) · d) at most twice, however many points are asked for; in float64,
    since in float32 the small balls of a class that the network has drawn together would hold all of it. Memory: two
    copies of the embeddings, those in float64, and 8 MiB; nothing grows with the number of pairs.
    Reference: Yehuda, Dekel, Hacohen & Weinshall, 2205.11320, Algorithm 1.
    """

    radius: float | None = None
    purity: float = 0.95
    counted: int = 50_000
    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def __post_init__(self) -> None:
        check_count("ProbCoverSelector", "counted", self.counted)
        if self.radius is not None and not self.radius >= 0:
            raise ValueError(f"ProbCoverSelector(radius={self.radius!r}): a distance of at least 0 is needed, or None.")
        if not 0 < self.purity < 1:
            raise ValueError(f"ProbCoverSelector(purity={self.purity!r}): a share between 0 and 1 is needed.")

    def __call__(
        self, snapshot: Snapshot, size: int, *, generator: torch.Generator, timer: StageTimer | None = None
    ) -> Query:
        timer = timer or StageTimer()
        points = snapshot.points.to(wide_dtype(snapshot.labels.device))
        points = points - points.mean(dim=0)  # products are more exact around the origin
        radius = None if self.radius is None else math.ldexp(self.radius, -snapshot.exponent)
        with full_float32(points.device):
            if radius is None:
                with timer.stage("radius"):
                    home = kmeans(points, snapshot.num_classes, generator)
                    radius = pure_radius(points, home, self.purity, generator)
            counted = torch.arange(len(points), device=points.device)
            if len(points) > self.counted:
                counted = sample_without_replacement(self.counted, len(points), generator, points.device)
            with timer.stage("counts"):
                cover = Cover(points, counted, radius)
                cover.add(snapshot.labeled)
            cover.gain[snapshot.labeled] = -1
            size = min(size, len(snapshot.unlabeled))
            chosen, gains = cover.gain.new_empty(size), cover.gain.new_empty(size)
            for place in timer.track_stage("query", range(size)):
                # argmax gives the first of equal ones, by its documentation.
                best = cover.gain.argmax(dim=0, keepdim=True)
                chosen[place] = best[0]
                gains[place] = cover.gain[best[0]]
                cover.add(best)
                cover.gain[best] = -1
        return in_order(chosen, -gains.to(snapshot.points.dtype))


class Cover:
    """How many uncovered points the ball around every point holds, as balls are added."""

    def __init__(self, points: Float[Tensor, "n d"], counted: Int[Tensor, " m"], radius: float) -> None:
        self.points, self.uncovered, self.radius = points, counted, radius
        # |x|² less what the rounding of |x|² + |y|² - 2x·y can make.
        self.square = points.square().sum(dim=1) * (1 - product_rounding(points.shape[1], points.dtype))
        self.gain = torch.zeros_like(counted[:1]).repeat(len(points))
        everyone = torch.arange(len(points), device=points.device)
        if len(counted) < len(everyone):
            self.count(everyone, counted, 1)
        else:
            self.count_pairs(everyone)

    def add(self, centers: Int[Tensor, " b"]) -> None:
        """Cover what the balls around `centers` hold, and take it off the counts of all balls that hold it too."""
        held = torch.zeros_like(self.uncovered, dtype=torch.bool)
        for block in centers.split(max(1, TILE_ENTRIES // max(1, len(held)))):
            held |= self.within(self.uncovered, block, self.radius).any(dim=1)
        covered, self.uncovered = self.uncovered[held], self.uncovered[~held]
        near = torch.zeros_like(self.square, dtype=torch.bool)
        for block in centers.split(max(1, TILE_ENTRIES // len(near))):
            # Whoever shares a point with a ball is at most two radii away; rounding must not lose one.
            near |= self.within(slice(None), block, 2.001 * self.radius).any(dim=1)
        self.count(near.nonzero()[:, 0], covered, -1)

    def count(self, rows: Int[Tensor, " r"], held: Int[Tensor, " h"], sign: int) -> None:
        """Add `sign` to the gain of `rows` for each of `held` within their balls."""
        for others in held.split(TILE_WIDTH):
            for block in rows.split(TILE_ENTRIES // max(1, len(others))):
                self.gain[block] += sign * self.within(block, others, self.radius).sum(dim=1).long()

    def count_pairs(self, everyone: Int[Tensor, " n"]) -> None:
        """Count everyone within the balls of everyone: who holds is held, so half of the pairs will do."""
        for start in range(0, len(everyone), TILE_WIDTH):
            others = everyone[start : start + TILE_WIDTH]
            self.count(others, others, 1)
            for block in everyone[start + TILE_WIDTH :].split(TILE_ENTRIES // len(others)):
                held = self.within(block, others, self.radius)
                self.gain[block] += held.sum(dim=1).long()
                self.gain[others] += (torch.ones_like(held[:, 0]) @ held).long()  # three times as fast as a sum

    def within(self, rows: Int[Tensor, " r"] | slice, others: Int[Tensor, " m"], radius: float) -> Float[Tensor, "r m"]:
        """1 where x and y are at most `radius` apart: |x|² + |y|² - 2x·y ≤ δ², give or take the rounding of that.

        In floating point, since sums of booleans are several times as slow.
        """
        distance = torch.addmm(self.square[others], self.points[rows], self.points[others].T, alpha=-2)
        return distance.le_((radius**2 - self.square[rows])[:, None])


def pure_radius(
    points: Float[Tensor, "n d"], home: Int[Tensor, " n"], purity: float, generator: torch.Generator
) -> float:
    """The largest δ for which a ball around a share `purity` of the points holds points of one cluster only.

    A ball is pure up to the distance of the nearest point of another cluster, so δ is a quantile of those.
    """
    judged = sample_without_replacement(JUDGED, len(points), generator, points.device)
    nearest = torch.full_like(points[judged, 0], float("inf"))
    for start in range(0, len(points), max(1, TILE_ENTRIES // len(judged))):
        part = slice(start, start + max(1, TILE_ENTRIES // len(judged)))
        distance = torch.cdist(points[judged], points[part])
        distance.masked_fill_(home[judged, None] == home[part], float("inf"))
        torch.minimum(nearest, distance.amin(dim=1), out=nearest)
    return float(nearest.sort().values[len(judged) - math.ceil(purity * len(judged))])
