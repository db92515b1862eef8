"""Ask about points whose labels would change the last layer much, in different directions."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.numerics.precision import distance_from_product, full_float32, ldexp
from lightning_diffal.numerics.sampling import kmeans_plus_plus
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import BatchSelector
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class BADGESelector(BatchSelector):
    """Ask by k-means++ among the gradients that the model's own predictions would give its last layer.

    g_i = (p_i - e_ŷ) ⊗ x_i with ŷ the predicted class: long where the model is uncertain, and in the direction of the
    embedding. The first point is the longest, each next one is drawn with a probability proportional to its squared
    distance to the nearest chosen one. The (n, c·d) gradients are never stored: with q = p - e_ŷ,
    |g_i - g_j|² = |g_i|² + |g_j|² - 2 (q_i·q_j)(x_i·x_j). The scores are these squared distances, negative.

    Needs embeddings and logits. Cost: O(n (c + d)) for every chosen point, a copy of the embeddings, O(n c) memory.
    Reference: Ash et al., 1906.03671, Algorithm 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings", "logits"})

    def select(self, snapshot: Snapshot, size: int, generator: torch.Generator, timer: StageTimer) -> Query:
        unlabeled = snapshot.unlabeled
        with timer.stage("gradients"):
            gradients = Gradients(snapshot.points[unlabeled], snapshot.probabilities[unlabeled])
        with timer.stage("query"), full_float32(unlabeled.device):
            first = gradients.square_norm.argmax(dim=0, keepdim=True)
            chosen, distances = kmeans_plus_plus(first, size, gradients.distance_to, generator)
        distances[0] = gradients.square_norm[first[0]]
        return Query.of(unlabeled[chosen], ldexp(-distances, 2 * snapshot.exponent))


class Gradients:
    """The gradients q ⊗ x of a last layer, by their factors."""

    def __init__(self, points: Float[Tensor, "n d"], probabilities: Float[Tensor, "n c"]) -> None:
        predicted = probabilities.argmax(dim=1, keepdim=True)
        self.points = points
        self.residual = probabilities.scatter_add(1, predicted, torch.full_like(probabilities[:, :1], -1.0))
        self.residual = self.residual.to(points.dtype)
        self.square_norm = points.square().sum(dim=1) * self.residual.square().sum(dim=1)

    def distance_to(self, rows: Int[Tensor, " t"]) -> Float[Tensor, "n t"]:
        """The squared distance of every gradient to those of `rows`."""
        square_sum = self.square_norm[:, None] + self.square_norm[rows]
        product = (self.residual @ self.residual[rows].T).mul_(self.points @ self.points[rows].T)
        return distance_from_product(square_sum, product, self.points.shape[1] + self.residual.shape[1])
