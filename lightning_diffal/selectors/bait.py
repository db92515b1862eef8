"""Ask about the points whose Fisher information leaves the least variance over the pool."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import check_positive, skip_type_check
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.tiles import tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import BatchSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot

# So many points are chosen for each that stays; the number is the authors'.
OVERSAMPLING = 2
# Gains are compared in units of the largest · 2⁻⁴⁰: equal ones are equal in whatever order they were summed.
UNIT = 2.0**-40
# Parameters of a last layer: its information has the square of that many entries, here 2 GB.
MAX_PARAMETERS = 2**14


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class BAITSelector(BatchSelector):
    """Ask about the points that lower tr(M⁻¹ F) most: the variance that remains in the pool's predictions.

    The Fisher information of the last layer at x, with probabilities p, is I(x) = (diag(p) - p pᵀ) ⊗ x xᵀ. F is its
    mean over the pool, and with m labeled points, B asked for and those chosen so far

        M = λ + m / (m + B) · mean_{labeled} I + B / (m + B) · Σ_{chosen} I.

    Greedily 2B points are chosen, then those removed that are missed least, until B are left. Embeddings are divided by
    the root of their mean square first, so that λ means the same in any unit; in the authors' code it does not. The
    scores are what each point lowered tr(M⁻¹ F) by when it was chosen, negative; ties go to the lower index.

    Args:
        regularization: λ > 0; the default is the authors'.

    Needs embeddings and logits. Cost: O(n c² d²) at first, then O(n c² (c + d)) for each of the 2B points: quadratic
    forms of all candidates are updated, not recomputed. Memory: 16 c² bytes a point and 32 (c d)² bytes. More than
    16,384 parameters c · d are refused.
    Reference: Ash, Goel, Krishnamurthy & Kakade, 2106.09675, Algorithm 1; weights and λ are those of their code.
    """

    regularization: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"embeddings", "logits"})

    def __post_init__(self) -> None:
        check_positive("BAITSelector", "regularization", self.regularization)

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        points, probabilities = snapshot.points, snapshot.probabilities.to(wide_dtype(snapshot.labels.device))
        if points.shape[1] * snapshot.num_classes > MAX_PARAMETERS:
            raise ValueError(
                f"BAITSelector: embeddings of {points.shape[1]} numbers and {snapshot.num_classes} classes make "
                f"{points.shape[1] * snapshot.num_classes} parameters, more than {MAX_PARAMETERS}, whose information "
                "does not fit in memory. Another layer= with fewer numbers, or BADGESelector, would do."
            )
        points = points.to(probabilities.dtype)
        points = points / (points.square().sum(dim=1).mean().sqrt() or 1.0)
        labeled, unlabeled, share = snapshot.labeled, snapshot.unlabeled, size / (len(snapshot.labeled) + size)
        with timer.stage("information"):
            pool = mean_information(points, probabilities)
            known = mean_information(points[labeled], probabilities[labeled]) * (1 - share)
            known.diagonal().add_(self.regularization)
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(known))
            forward = Candidates(points[unlabeled], probabilities[unlabeled], share, inverse, pool)
        chosen: list[int] = []
        gains: dict[int, float] = {}
        for _ in timer.track_stage("query", range(min(OVERSAMPLING * size, len(unlabeled)))):
            gain = forward.change(1)
            gain[chosen] = -1
            best = int((gain / (UNIT * gain.amax().clamp_min(torch.finfo(gain.dtype).tiny))).round().argmax())
            gains[best] = float(gain[best])
            chosen.append(best)
            forward.update(best, 1)
        rows = unlabeled[chosen]
        backward = Candidates(points[rows], probabilities[rows], share, forward.inverse, pool)
        stays = torch.ones_like(rows, dtype=torch.bool)
        for _ in timer.track_stage("pruning", range(len(rows) - size)):
            loss = torch.where(stays, backward.change(-1), math.inf)
            least = int((loss / (UNIT * loss[stays].amax().clamp_min(torch.finfo(loss.dtype).tiny))).round().argmin())
            stays[least] = False
            backward.update(least, -1)
        scores = -torch.tensor([gains[row] for row in chosen], dtype=points.dtype, device=points.device)
        return Query.of(rows[stays], scores[stays])


def covariance(probabilities: Float[Tensor, "n c"]) -> Float[Tensor, "n c c"]:
    """diag(p) - p pᵀ."""
    return torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None]


def mean_information(points: Float[Tensor, "n d"], probabilities: Float[Tensor, "n c"]) -> Float[Tensor, "p p"]:
    """The mean of (diag(p) - p pᵀ) ⊗ x xᵀ; 0 of no points. Parameters are in the order of class, then dimension."""
    classes, dimensions = probabilities.shape[1], points.shape[1]
    total = points.new_zeros(classes, dimensions, classes, dimensions)
    height = tile_height(classes * max(classes, dimensions))
    for x, p in zip(points.split(height), probabilities.split(height), strict=True):
        variance = covariance(p)
        for one in range(classes):
            weighted = (variance[:, one, :, None] * x[:, None]).flatten(1)  # (tile, c · d)
            total[one] += (x.T @ weighted).view(dimensions, classes, dimensions)
    return total.flatten(2).flatten(0, 1) / max(1, len(points))


class Candidates:
    """What adding a point to M, or removing it, changes in tr(M⁻¹ F), for each of some points.

    With Σ = share · (diag(p) - p pᵀ), Z = 1 ⊗ x, G = Zᵀ M⁻¹ Z and H = Zᵀ M⁻¹ F M⁻¹ Z, both c × c, Woodbury's identity
    gives tr(H Σ (1 ± G Σ)⁻¹). As M⁻¹ changes by ∓ V Vᵀ, G and H change by products of V, M⁻¹ F V and x alone.
    """

    def __init__(
        self,
        points: Float[Tensor, "n d"],
        probabilities: Float[Tensor, "n c"],
        share: float,
        inverse: Float[Tensor, "p p"],
        pool: Float[Tensor, "p p"],
    ) -> None:
        self.points, self.probabilities, self.share = points, probabilities, share
        self.inverse, self.pool = inverse, pool
        self.form = self.quadratic_form(inverse)
        self.pool_form = self.quadratic_form(inverse @ pool @ inverse)

    def quadratic_form(self, matrix: Float[Tensor, "p p"]) -> Float[Tensor, "n c c"]:
        classes, dimensions = self.probabilities.shape[1], self.points.shape[1]
        form = self.points.new_empty(len(self.points), classes, classes)
        height = tile_height(len(matrix))
        for x, part in zip(self.points.split(height), form.split(height), strict=True):
            for one, block in enumerate(matrix.view(classes, dimensions, -1)):
                part[:, one] = ((x @ block).view(-1, classes, dimensions) @ x[:, :, None])[:, :, 0]
        return form

    def change(self, sign: int) -> Float[Tensor, " n"]:
        """How much tr(M⁻¹ F) falls as a point is added (1), or rises as it is removed (-1)."""
        result = torch.empty_like(self.points[:, 0])
        height = tile_height(self.form[0].numel())
        one = torch.eye(self.form.shape[1], dtype=result.dtype, device=result.device)
        for start in range(0, len(result), height):
            rows = slice(start, start + height)
            variance = self.share * covariance(self.probabilities[rows])
            ratio = torch.linalg.solve(one + sign * self.form[rows] @ variance, self.pool_form[rows] @ variance)
            result[rows] = ratio.diagonal(dim1=1, dim2=2).sum(dim=1)
        return result

    def update(self, row: int, sign: int) -> None:
        """Add this point to M (1), or remove it (-1)."""
        p, x = self.probabilities[row], self.points[row]
        # Rows √p_y (e_y - p): their products are the variances.
        root = (self.share * p).sqrt()[:, None] * (torch.diag_embed(torch.ones_like(p)) - p)
        factor = (root[:, :, None] * x).flatten(1)  # (c, c · d)
        product = factor @ self.inverse
        inner = torch.diag_embed(torch.ones_like(p)) + sign * product @ factor.T
        change = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), product, upper=False)  # Vᵀ
        through_pool = change @ self.pool @ self.inverse
        pool_part = change @ self.pool @ change.T
        self.inverse = self.inverse - sign * change.T @ change
        height = tile_height(factor.numel())
        for start in range(0, len(self.points), height):
            rows = slice(start, start + height)
            at, pool_at = self.project(change, rows), self.project(through_pool, rows)
            self.form[rows] -= sign * at.mT @ at
            cross = at.mT @ pool_at
            self.pool_form[rows] += at.mT @ pool_part @ at - sign * (cross + cross.mT)

    def project(self, change: Float[Tensor, "c p"], rows: slice) -> Float[Tensor, "n c c"]:
        """Vᵀ Z for some points."""
        classes, dimensions = self.probabilities.shape[1], self.points.shape[1]
        return (self.points[rows] @ change.reshape(-1, dimensions).T).view(-1, classes, classes)
