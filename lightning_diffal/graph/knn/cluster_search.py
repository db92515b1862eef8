"""Backend "cluster": torch-cluster, a kd-tree on the CPU and a CUDA kernel on the GPU."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.knn.candidates import Candidates, IncompleteResultError


def search_cluster(
    points: Float[Tensor, "n d"], count: int, progress: Progress, ranks: Ranks = SINGLE_PROCESS
) -> Candidates:
    """Candidates for the rows that this rank searches. One call, so that there is no progress to report.

    Cost for r rows: O(r n d) on CUDA; on the CPU O((n + r) d log n) in few dimensions and O(r n d) in many.
    """
    import torch_cluster  # noqa: PLC0415, an extra

    own = ranks.own_rows(len(points))
    rows = torch.arange(own.start, own.stop, device=points.device)
    # It sums squared differences, so that its error does not grow with the norms.
    spread = torch.zeros_like(points[own, 0])
    if len(rows) == 0:
        return Candidates(rows, rows[:, None].expand(-1, count), spread)
    row, col = torch_cluster.knn(points, points[own], count, num_workers=torch.get_num_threads())
    expected = torch.arange(len(rows), device=points.device).repeat_interleave(count)
    if not torch.equal(row, expected):
        # Seen on CUDA: PyG issues 4906 and 7475.
        raise IncompleteResultError(
            f'build_graph(backend="cluster"): torch-cluster returned {len(row)} edges where {len(expected)} were asked '
            f'for ({count} for each of {len(rows)} points). backend="torch" gives the same graph without it.'
        )
    return Candidates(rows, col.view(len(rows), count), spread)
