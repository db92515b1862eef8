"""The distinct ones of some nodes."""

import torch
from jaxtyping import Int
from torch import Tensor

# Sorting a node takes as long as looking at so many.
SORT_FACTOR = 16


def distinct(nodes: Int[Tensor, " e"], num_nodes: int) -> tuple[Int[Tensor, " d"], Int[Tensor, " e"]]:
    """Each of these nodes once, ascending, and for each of them its place among those.

    Cost: O(e log e) or O(num_nodes), whichever is less.
    """
    nodes = nodes.long()
    if SORT_FACTOR * len(nodes) < num_nodes:
        once, place = nodes.unique(return_inverse=True)
        return once, place
    marked = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device)
    marked[nodes] = True
    once = marked.nonzero()[:, 0]
    place = torch.empty(num_nodes, dtype=torch.long, device=nodes.device)
    place[once] = torch.arange(len(once), device=nodes.device)
    return once, place[nodes]
