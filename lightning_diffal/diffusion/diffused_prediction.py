"""The model's probabilities after a step over the graph."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.walk import step
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.tiles import tile_height

# Classes diffused together.
COLUMNS = 16
# A smaller 1 - (q₁ - q₂) is rounding error, and none.
CERTAIN = 2.0**-40


@dataclass(frozen=True, eq=False)
class DiffusedPrediction:
    """q = w M f + (1 - w) f with the probabilities f of the model, labeled nodes held at their labels.

    Memory: 400 bytes a node, however many classes there are.
    """

    graph: NeighborGraph
    labels: Int[Tensor, " n"]
    logits: Float[Tensor, "n c"]
    share: float
    """w, of the diffused part."""

    def diffused(self, values: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        return values.lerp_(step(self.graph, values, self.labels), self.share)

    def uncertainty(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " c"]]:
        """1 - (q₁ - q₂) of the two largest at each node, and Σ_j q_jc. Cost: O(edges · c)."""
        labels, logits = self.labels, self.logits
        first = torch.zeros_like(labels, dtype=wide_dtype(labels.device))
        second, total = torch.zeros_like(first), torch.zeros_like(first)
        height = tile_height(logits.shape[1])
        for part, rows in zip(total.split(height), logits.split(height), strict=True):
            part.copy_(rows.to(total.dtype).logsumexp(dim=1))
        labeled = (labels != UNLABELED).nonzero()[:, 0]
        class_size = torch.zeros_like(first[:1]).repeat(logits.shape[1])
        for classes in torch.arange(logits.shape[1], device=labels.device).split(COLUMNS):
            mass = (logits[:, classes].to(total.dtype) - total[:, None]).exp_()
            mass[labeled] = (labels[labeled, None] == classes).to(mass.dtype)
            mass = self.diffused(mass)
            class_size[classes] = mass.sum(dim=0)
            both = torch.cat([first[:, None], second[:, None], mass], dim=1)
            first, second = both.topk(2, dim=1).values.unbind(dim=1)
        uncertainty = 1 - (first - second)
        return torch.where(uncertainty < CERTAIN, 0.0, uncertainty), class_size

    def expectation(self, class_value: Float[Tensor, " c"]) -> Float[Tensor, " n"]:
        """Σ_c q_c v_c. A step is linear, so the sum over classes takes it. Cost: O(edges + n · c)."""
        labels, logits = self.labels, self.logits
        value = torch.zeros_like(labels, dtype=class_value.dtype)
        height = tile_height(logits.shape[1])
        for part, rows in zip(value.split(height), logits.split(height), strict=True):
            torch.mv(rows.to(value.dtype).softmax(dim=1), class_value, out=part)
        labeled = (labels != UNLABELED).nonzero()[:, 0]
        value[labeled] = class_value[labels[labeled].long()]
        return self.diffused(value[:, None])[:, 0]
