"""Candidates for the nearest neighbors by faiss, exact search on the CPU."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress

BLOCK = 8192


def search_faiss(
    points: Float[Tensor, "n d"], rows: Int[Tensor, " r"], count: int, progress: Progress
) -> tuple[Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The `count` nearest points of those at `rows`, itself among them, and the spread its float32 error grows with.

    faiss-cpu reads host memory: points on another device are copied there, and the answer back.
    Cost: r n distances.
    """
    import faiss  # noqa: PLC0415, an extra

    host = points.cpu().numpy()
    index = faiss.IndexFlatL2(host.shape[1])
    index.add(host)
    found = torch.empty(len(rows), count, dtype=torch.long, device=points.device)
    for start in progress(range(0, len(rows), BLOCK)):
        some = points[rows[start : start + BLOCK]].cpu().numpy()
        found[start : start + BLOCK] = torch.from_numpy(index.search(some, count)[1])
    return found, points[rows].norm(dim=1)
