"""Backend "faiss": exact search on the CPU."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.candidates import Candidates

# Rows searched in one call, so that progress can be reported in between.
ROWS_PER_CALL = 8192


def search_faiss(
    points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks = SINGLE_PROCESS
) -> Candidates:
    """Candidates for the rows that this rank searches.

    faiss-cpu reads host memory: points on another device are copied there, and the result back. Cost: r n distances.
    """
    import faiss  # noqa: PLC0415, an extra

    own = ranks.own_rows(len(points))
    rows = torch.arange(own.start, own.stop, device=points.device)
    host = points.cpu().numpy()
    index = faiss.IndexFlatL2(host.shape[1])
    index.add(host)
    found = torch.empty(len(rows), count, dtype=torch.long, device=points.device)
    for start in progress(range(0, len(rows), ROWS_PER_CALL)):
        part = host[own.start + start : min(own.start + start + ROWS_PER_CALL, own.stop)]
        found[start : start + ROWS_PER_CALL] = torch.from_numpy(index.search(part, count)[1])
    return Candidates(rows, found, points[own].norm(dim=1))
