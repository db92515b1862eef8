"""Candidates for the nearest neighbors by torch-cluster: a kd-tree on the CPU, a CUDA kernel on the GPU."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

# The CUDA kernel keeps the best in an array of this size for each thread.
CUDA_MOST = 100


class ThinAnswerError(RuntimeError):
    """torch-cluster returned fewer edges than it was asked for."""


def search_cluster(points: Float[Tensor, "n d"], count: int) -> tuple[Int[Tensor, "n count"], Float[Tensor, " n"]]:
    """The `count` nearest points of each point, itself among them, and the spread its float32 error grows with.

    Cost: O(n² d) on CUDA; on the CPU O(n d log n) in few dimensions and O(n² d) in many.
    """
    import torch_cluster  # noqa: PLC0415, an extra

    row, col = torch_cluster.knn(points, points, count, num_workers=torch.get_num_threads())
    expected = torch.arange(len(points), device=points.device).repeat_interleave(count)
    if not torch.equal(row, expected):
        # Seen on CUDA: PyG issues 4906 and 7475.
        raise ThinAnswerError(
            f'build_graph(backend="cluster"): torch-cluster returned {len(row)} edges where {len(expected)} were asked '
            f'for ({count} for each of {len(points)} points). backend="torch" gives the same graph without it.'
        )
    # It sums squared differences, whatever the norms: nothing to cancel.
    return col.view(len(points), count), torch.zeros_like(points[:, 0])
