"""How far labels walk when the user does not say."""

import math

from lightning_diffal.graph.neighbor_graph import NeighborGraph


def default_steps(graph: NeighborGraph) -> int:
    """T = max(1, round(log_K n)): K steps from every node, T times over, would see the whole pool once.

    K is the mean out-degree, the number of neighbors unless the graph was symmetrized.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning, section 4.4.
    """
    degree = max(2.0, graph.share.ranks.sum(len(graph.col)) / graph.num_nodes)
    return max(1, round(math.log(graph.num_nodes) / math.log(degree)))
