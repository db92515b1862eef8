"""Algorithm 1 and appendix B, written from the paper with dense NumPy arrays. Slow, and easy to check by eye."""

import numpy as np
from scipy.spatial import cKDTree


def dense(graph):
    """W of a NeighborGraph as an (n, n) array."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    crow, col, weight = graph.crow.numpy(), graph.col.numpy(), graph.weight.double().numpy()
    for i in range(graph.num_nodes):
        for edge in range(crow[i], crow[i + 1]):
            matrix[i, col[edge]] += weight[edge]
    return matrix


def weights(points, k):
    """W_ij = exp(-ρ_ij / σ_i) over the k nearest, from a kd-tree; for points in general position."""
    points = np.asarray(points, dtype=np.float64)
    distance, index = cKDTree(points).query(points, k + 1)
    matrix = np.zeros((len(points), len(points)))
    for i in range(len(points)):
        rho = distance[i, 1:] ** 2
        matrix[i, index[i, 1:]] = np.exp(-rho / rho.max())
    return matrix


def chi(matrix, labels, num_classes, steps, soft=None):
    """χ⁽ᵀ⁾, and for each node whether a label is within `steps` steps of it."""
    kernel = matrix / matrix.sum(axis=1, keepdims=True)
    labeled = np.flatnonzero(labels >= 0)
    signal = np.zeros((len(labels), num_classes)) if soft is None else 2 * np.asarray(soft, dtype=np.float64) - 1
    reached = np.zeros(len(labels), dtype=bool) if soft is None else np.ones(len(labels), dtype=bool)

    def clamp():
        signal[labeled] = -1
        signal[labeled, labels[labeled]] = 1
        reached[labeled] = True

    clamp()
    for _ in range(steps):
        signal = kernel @ signal
        reached = (matrix > 0) @ reached.astype(int) > 0
        clamp()
    return signal, reached


def batch_query(matrix, labels, num_classes, size, mini_batch, steps, answer, soft=None, delta=None):
    """Indices, scores and reached flags of a batch query, in the order of the choice."""
    labels, influence = labels.copy(), matrix.sum(axis=1)
    indices, scores, flags = [], [], []
    size = min(size, int((labels < 0).sum()))
    while len(indices) < size:
        signal, reached = chi(matrix, labels, num_classes, steps, soft)
        score = np.abs(signal).min(axis=1)
        unlabeled = np.flatnonzero(labels < 0)
        # Compared to ten digits, so that what is equal on paper is equal here, and the lower index decides.
        order = sorted(unlabeled, key=lambda i: (reached[i], round(score[i] if reached[i] else -influence[i], 10), i))
        chosen = order[: min(mini_batch, size - len(indices))]
        indices += chosen
        scores += [score[i] for i in chosen]
        flags += [bool(reached[i]) for i in chosen]
        labels[chosen] = answer(np.array(chosen), signal)
        if delta is not None and (~reached[unlabeled]).sum() < delta * len(labels):
            steps = max(1, steps - 1)
    return indices, scores, flags
