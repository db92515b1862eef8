"""Ask about the points that are farthest from everything asked before."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.selectors.score import in_order
from lightning_diffal.selectors.selector import Query, Snapshot
from lightning_diffal.watch import Watch

# Distances held at a time, 4 bytes each.
TILE_ENTRIES = 2**22


@dataclass(frozen=True, kw_only=True)
class CoresetSelector:
    """Ask about the point farthest from all labeled and chosen ones, again and again: greedy k-center.

    argmax_i min_{j labeled or chosen} |x_i - x_j|, within twice the smallest covering radius there is. The scores are
    these distances, negative. Ties go to the lower index; without any label the first is the nearest to the mean.

    Needs embeddings. Cost: O(n d) for every labeled and chosen point, 4 bytes a point and 16 MiB.
    Reference: Sener & Savarese, 1708.00489, Algorithm 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def __call__(self, snapshot: Snapshot, size: int, *, watch: Watch | None = None) -> Query:
        watch = watch or Watch()
        points, labeled, unlabeled = snapshot.points, snapshot.labeled, snapshot.unlabeled
        candidates = points if len(labeled) == 0 else points[unlabeled]
        with watch.stage("distances"):
            if len(labeled) == 0:
                nearest = -distance_to_nearest(points, points.mean(dim=0, keepdim=True))
            else:
                nearest = distance_to_nearest(candidates, points[labeled])
        chosen, distances = [], []
        for _ in watch.over("query", range(min(size, len(candidates)))):
            # argmax gives the first of equal ones, by its documentation.
            farthest = nearest.argmax(dim=0, keepdim=True)
            chosen.append(farthest)
            distances.append(nearest[farthest])
            if len(labeled) == 0 and len(chosen) == 1:
                nearest.fill_(float("inf"))
            torch.minimum(nearest, distance_to_nearest(candidates, candidates[farthest]), out=nearest)
            nearest[farthest] = -1  # behind all others, where it coincides with them too
        if not chosen:
            return Query.empty(points)
        return in_order(unlabeled[torch.cat(chosen)], -torch.cat(distances))


def distance_to_nearest(points: Float[Tensor, "n d"], others: Float[Tensor, "m d"]) -> Float[Tensor, " n"]:
    """min_j |x_i - y_j|, from differences: exactly 0 where they coincide."""
    nearest = torch.full_like(points[:, 0], float("inf"))
    for block in others.split(max(1, TILE_ENTRIES // len(points))):
        distance = torch.cdist(points, block, compute_mode="donot_use_mm_for_euclid_dist")  # (n, block)
        torch.minimum(nearest, distance.amin(dim=1), out=nearest)
    return nearest
