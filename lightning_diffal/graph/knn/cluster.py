"""Candidates for the nearest neighbors by torch-cluster: a kd-tree on the CPU, a CUDA kernel on the GPU."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

# The CUDA kernel keeps the best in an array of this size for each thread.
CUDA_MOST = 100


class ThinAnswerError(RuntimeError):
    """torch-cluster returned fewer edges than it was asked for."""


def search_cluster(
    points: Float[Tensor, "n d"], rows: Int[Tensor, " r"], count: int
) -> tuple[Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The `count` nearest points of those at `rows`, itself among them, and the spread its float32 error grows with.

    Cost: O(r n d) on CUDA; on the CPU O((n + r) d log n) in few dimensions and O(r n d) in many.
    """
    import torch_cluster  # noqa: PLC0415, an extra

    some = points[rows]
    if len(rows) == 0:
        return rows[:, None].expand(-1, count), some[:, 0]
    row, col = torch_cluster.knn(points, some, count, num_workers=torch.get_num_threads())
    expected = torch.arange(len(rows), device=points.device).repeat_interleave(count)
    if not torch.equal(row, expected):
        # Seen on CUDA: PyG issues 4906 and 7475.
        raise ThinAnswerError(
            f'build_graph(backend="cluster"): torch-cluster returned {len(row)} edges where {len(expected)} were asked '
            f'for ({count} for each of {len(rows)} points). backend="torch" gives the same graph without it.'
        )
    # It sums squared differences, whatever the norms: nothing to cancel.
    return col.view(len(rows), count), torch.zeros_like(some[:, 0])
