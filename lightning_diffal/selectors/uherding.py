"""Ask about the points whose kernels cover most of what the model is uncertain of."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import check_count, check_positive, skip_type_check
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.sampling import sample_without_replacement
from lightning_diffal.numerics.tiles import tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.points import PointSelector, PointSource
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot
from lightning_diffal.selectors.uncertainty import MarginSelector

# Distances below this are those of coinciding points of unit length, apart from rounding errors.
COINCIDING = 1e-6
# Gains are compared in units of 2⁻⁴⁰ of all there is to gain: equal ones are equal in whatever order they were summed.
UNIT = 2.0**-40
# Gains computed together: at first, and at most.
FIRST_BLOCK, LARGEST_BLOCK = 16, 1024


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class UHerdingSelector(PointSelector):
    """Ask about the point that raises Σ_i u_i max_{l labeled or chosen} exp(-|x_i - x_l|² / σ²) most, again and again.

    The sum is over unlabeled points, scaled to unit length, u = 1 - (p₁ - p₂) with the model's two largest
    probabilities; 1 without logits, which is MaxHerding. σ is the smallest distance between labeled points that do not
    coincide, 1 without any: the kernels become narrow, and the query uncertain points alone, as labels grow. The scores
    are the gains, negative; ties go to the lower index.

    Args:
        temperature: Divides the logits. The authors fit it each round, by training once more on a part of the labels.
        counted: In a larger pool than this, the sum is over this many points, drawn at random. Every point remains a
            candidate.
        on: "features", the fixed ones, as the authors do, or "embeddings".

    Needs features, or embeddings where there are none, and logits if there are any. Cost: O(n · min(n, counted) · d)
    once, then O(min(n, counted) · d) for each candidate whose gain was the largest before (lazy greedy). Memory: three
    copies of the points in float64 and 16 MiB.
    Reference: Bae, Oliveira & Sutherland, 2412.20644, Algorithm 1.
    """

    temperature: float = 1.0
    counted: int = 50_000
    on: PointSource = "features"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("UHerdingSelector", "counted", self.counted)
        check_positive("UHerdingSelector", "temperature", self.temperature)

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"logits"}

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        points = snapshot.scaled_points(self.on)[0].to(wide_dtype(snapshot.labels.device))
        points = points / torch.linalg.vector_norm(points, dim=1, keepdim=True).clamp_min(
            torch.finfo(points.dtype).tiny
        )
        unlabeled, counted = snapshot.unlabeled, snapshot.unlabeled
        if len(counted) > self.counted:
            counted = counted[sample_without_replacement(self.counted, len(counted), generator, counted.device)]
        weight = torch.ones_like(points[counted, 0])
        if snapshot.logits is not None:
            weight -= MarginSelector().certainty(
                (snapshot.logits[counted].to(weight) / self.temperature).softmax(dim=1)
            )
        labeled = points[snapshot.labeled]
        with timer.stage("gains"):
            coverage = KernelCoverage(points[counted], weight.clamp_min_(0), smallest_distance(labeled))
            coverage.add(labeled)
            gains = coverage.gains(points[unlabeled])
        computed_at = torch.zeros_like(gains)
        chosen, scores = torch.empty_like(unlabeled[:size]), torch.empty_like(weight[:size])
        for number in timer.track_stage("query", range(size)):
            block = FIRST_BLOCK
            while True:
                best = gains.argmax(dim=0, keepdim=True)  # the first of equal ones, by its documentation
                if int(computed_at[best]) == number:
                    break
                rows = gains.topk(min(block, len(gains))).indices
                rows = torch.cat([best, rows[(computed_at[rows] < number) & (rows != best)]])
                gains[rows] = torch.minimum(gains[rows], coverage.gains(points[unlabeled[rows]]))
                computed_at[rows] = number
                block = min(2 * block, LARGEST_BLOCK)
            chosen[number], scores[number] = unlabeled[best], -gains[best] * coverage.unit
            coverage.add(points[unlabeled[best]])
            gains[best] = -1
            computed_at[best] = size
        return Query.of(chosen, scores)


def smallest_distance(points: Float[Tensor, "m d"]) -> float:
    """The smallest distance between two points that do not coincide; 1 if there are none."""
    smallest = math.inf
    for start in range(0, len(points), tile_height(len(points))):
        rows = points[start : start + tile_height(len(points))]
        distance = torch.cdist(rows, points, compute_mode="donot_use_mm_for_euclid_dist")
        smallest = min(smallest, float(distance.masked_fill_(distance < COINCIDING, math.inf).amin()))
    return smallest if smallest < math.inf else 1.0


class KernelCoverage:
    """Σ_i u_i max_l exp(-|x_i - x_l|² / σ²) over points x of unit length, for a growing set of l.

    Products are in float64, so that neither they nor the order of a sum decide between candidates.
    """

    def __init__(self, points: Float[Tensor, "n d"], weight: Float[Tensor, " n"], width: float) -> None:
        self.points, self.weight, self.width = points, weight, width
        self.square = points.square().sum(dim=1)
        self.covered = torch.zeros_like(weight)
        self.unit = UNIT * float(weight.sum()) or 1.0

    def kernel(self, others: Float[Tensor, "m d"]) -> Float[Tensor, "m n"]:
        square_sum = others.square().sum(dim=1, keepdim=True) + self.square
        distance = torch.addmm(square_sum, others, self.points.T, alpha=-2)
        return distance.clamp_min_(0).div_(-(self.width**2)).exp_()

    def gains(self, candidates: Float[Tensor, "m d"]) -> Int[Tensor, " m"]:
        """How much each candidate would add, in whole units."""
        gains = torch.empty_like(candidates[:, 0])  # at once: small tensors between large ones leave memory in pieces
        height = tile_height(len(self.points))
        for part, some in zip(gains.split(height), candidates.split(height), strict=True):
            torch.mv(self.kernel(some).sub_(self.covered).clamp_min_(0), self.weight, out=part)
        return (gains / self.unit).round().long()

    def add(self, others: Float[Tensor, "m d"]) -> None:
        for some in others.split(tile_height(len(self.points))) if len(others) else ():
            torch.maximum(self.covered, self.kernel(some).amax(dim=0), out=self.covered)
