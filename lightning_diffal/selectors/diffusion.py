"""The method of the paper: ask where the diffused labels are closest to zero, a mini-batch at a time."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress, check_count, checks_its_arguments
from lightning_diffal.diffusion.horizon import default_steps
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED, check_labels, check_probabilities
from lightning_diffal.selectors.chooser import Chooser
from lightning_diffal.selectors.selector import Query

# What the answer to a question may come as.
Answer = Callable[[Tensor], Tensor | Iterable[int]]

STATE_BYTES = 2**32


@torch.no_grad()
@checks_its_arguments
def batch_query(
    graph: NeighborGraph,
    labels: Int[Tensor, " n"],
    num_classes: int,
    *,
    size: int,
    mini_batch: int = 1,
    steps: int | None = None,
    answer: Answer | None = None,
    soft_labels: Float[Tensor, "n c"] | None = None,
    shrink_below: float | None = None,
    state_bytes: int = STATE_BYTES,
    progress: Progress = iter,
) -> Query:
    """Choose the `size` unlabeled points whose labels would teach most.

    R = ⌈size / mini_batch⌉ times: let the labels known so far diffuse T steps (`diffuse`), take the points with the
    smallest min_c |χ_c|, learn their labels, go on. Points that no label reaches come first, those of the largest
    influence Σ_j W_ij before the others; ties go to the lower index. Fewer unlabeled points than `size`: all of them.

    Args:
        labels: Class of each node, -1 where unknown.
        size: B, the points to choose.
        mini_batch: P, the points chosen between two diffusions. Small ones are more diverse, and slower.
        steps: T. By default round(log_k n), at least 1.
        answer: Asked for the labels of each mini-batch, by its indices, as soon as it is chosen. Without it a chosen
            point is taken to be of the class with the largest χ, lowest on ties, for the rest of this call.
        soft_labels: Probabilities of the current model, from which unlabeled nodes start instead of from zero.
            Every node then has mass from the start, and none counts as unreached.
        shrink_below: δ. After each mini-batch that was chosen while fewer than δ·n unlabeled points were unreached,
            T ← max(1, T - 1).
        state_bytes: Keep χ⁽⁰⁾ to χ⁽ᵀ⁾ and update only what new labels reach, if that fits into so many bytes; else
            recompute in full within them. The choice is the same.
        progress: Wraps the loop over mini-batches; `tqdm.tqdm` draws a bar.

    Cost: while points are unreached, O(T · edges) for all choices together. Then O(T · edges · c) once, O(n) a
    mini-batch, and O(k · c) for each node that a new label reaches within T steps. Memory: `state_bytes` and 60 bytes
    an edge.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning, Algorithm 1 and appendix B.
    """
    check_labels("batch_query", labels, graph.num_nodes, num_classes, graph.device)
    for name, value in {"size": size, "mini_batch": mini_batch, "state_bytes": state_bytes}.items():
        check_count("batch_query", name, value)
    if steps is None:
        steps = default_steps(graph)
    check_count("batch_query", "steps", steps)
    if shrink_below is not None and not 0 <= shrink_below <= 1:
        raise ValueError(
            f"batch_query(shrink_below={shrink_below!r}): a share of the pool in [0, 1] is needed, or None."
        )
    if soft_labels is not None:
        check_probabilities("batch_query", soft_labels, graph.num_nodes, num_classes, graph.device)

    chooser = Chooser(graph, labels.long(), num_classes, steps, soft_labels, state_bytes)
    size = min(size, int((labels == UNLABELED).sum()))
    chosen = [Query.empty(graph.weight)]
    for start in progress(range(0, size, mini_batch)):
        query = chooser.choose(min(mini_batch, size - start))
        chosen.append(query)
        # Counted before the answers, as in appendix B.3: the points that this mini-batch was chosen from.
        shrink = shrink_below is not None and chooser.unreached() < shrink_below * graph.num_nodes
        chooser.learn(query.indices, chooser.likeliest(query) if answer is None else ask(answer, query, num_classes))
        if shrink and chooser.steps > 1:
            chooser.set_steps(chooser.steps - 1)
    return Query.joined(chosen)


@checks_its_arguments
def ask(answer: Answer, query: Query, num_classes: int) -> Int[Tensor, " b"]:
    """The labels of a mini-batch, refused if they are not one class for each point."""
    given = answer(query.indices)
    classes = given if isinstance(given, Tensor) else torch.tensor(list(given), device=query.indices.device)
    classes = classes.to(query.indices.device)
    whole = not classes.dtype.is_floating_point and classes.dtype != torch.bool
    if whole and classes.shape == query.indices.shape and bool(((classes >= 0) & (classes < num_classes)).all()):
        return classes.long()
    raise ValueError(
        f"batch_query(answer=...): asked about the points {query.indices.tolist()} it answered {classes.tolist()}. "
        f"One class in [0, {num_classes}) for each of them is needed."
    )
