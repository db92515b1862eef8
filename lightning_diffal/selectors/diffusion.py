"""The method of the paper: ask where the diffused labels are closest to zero, a mini-batch at a time."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress, check_count, check_flag, check_function, skip_type_check
from lightning_diffal.diffusion.diffuse import default_steps
from lightning_diffal.graph.knn.registry import Backend, check_backend
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph, check_graph, check_neighbors
from lightning_diffal.labels import UNLABELED, check_labels, check_probabilities
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import Answer, ScoreSelector
from lightning_diffal.selectors.mini_batches import MiniBatchChooser
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot, require, timed_graph

STATE_BYTES = 2**32


@torch.no_grad()
@skip_type_check
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
    """Choose the `size` unlabeled points whose labels are most informative.

    R = ⌈size / mini_batch⌉ times: let the labels known so far diffuse T steps (`diffuse`), take the points with the
    smallest min_c |χ_c|, add their labels, repeat. Points that no label reaches come first, those of the largest
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
        state_bytes: Keep χ⁽⁰⁾ to χ⁽ᵀ⁾ (of many classes only the nonzero masses) and update only what new labels reach,
            if that fits into this many bytes; else recompute in full within this limit. The choice is the same.
        progress: Wraps the loop over mini-batches; `tqdm.tqdm` draws a bar.

    Cost: while points are unreached, O(T · edges) for all choices together. Then O(T · edges · c) once, O(n) a
    mini-batch, and O(k · c) for each node that a new label reaches within T steps; c are the classes that have a label.
    Memory: `state_bytes` and 60 bytes an edge.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning, Algorithm 1 and appendix B.
    """
    check_graph("batch_query", graph)
    check_labels("batch_query", labels, graph.num_nodes, num_classes, graph.device)
    for name, value in {"size": size, "mini_batch": mini_batch, "state_bytes": state_bytes}.items():
        check_count("batch_query", name, value)
    if steps is None:
        steps = default_steps(graph)
    check_count("batch_query", "steps", steps)
    check_shrink_below("batch_query", shrink_below)
    if answer is not None:
        check_function("batch_query", "answer", answer)
    check_function("batch_query", "progress", progress)
    if soft_labels is not None:
        check_probabilities("batch_query", "soft_labels", soft_labels, graph.num_nodes, num_classes, graph.device)

    size = min(size, int((labels == UNLABELED).sum()))
    # A predicted class has a label already, or is 0.
    new_classes = 1 if answer is None else size
    chooser = MiniBatchChooser(graph, labels.long(), num_classes, steps, soft_labels, state_bytes, new_classes)
    queries, unreached = [Query.of(labels[:0].long(), graph.weight[:0])], chooser.num_unreached()
    for start in progress(range(0, size, mini_batch)):
        query = chooser.choose(min(mini_batch, size - start))
        queries.append(query)
        # Counted before the answers, as in appendix B.3: the points that this mini-batch was chosen from.
        shrink = shrink_below is not None and chooser.num_unreached() < shrink_below * graph.num_nodes
        classes = chooser.predicted_class(query) if answer is None else ask(answer, query, num_classes)
        if start + mini_batch >= size:
            continue  # no choice follows; a break would leave a bar one short
        chooser.add_labels(query.indices, classes)
        if shrink and chooser.steps > 1:
            chooser.set_steps(chooser.steps - 1)
    return Query.cat(queries, unreached)


@skip_type_check
def check_shrink_below(caller: str, fraction: float | None) -> None:
    if fraction is not None and not (isinstance(fraction, (int, float)) and 0 <= fraction <= 1):
        raise ValueError(f"{caller}(shrink_below={fraction!r}): a fraction of the pool in [0, 1] is needed, or None.")


@skip_type_check
def ask(answer: Answer, query: Query, num_classes: int) -> Int[Tensor, " b"]:
    """The labels of a mini-batch, refused if they are not one class for each point."""
    given = answer(query.indices)
    try:
        classes = given if isinstance(given, Tensor) else torch.tensor(list(given), device=query.indices.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"batch_query(answer=...): it answered {given!r:.60}. A tensor or a list of classes is needed."
        ) from error
    classes = classes.to(query.indices.device)
    integers = not classes.dtype.is_floating_point and classes.dtype != torch.bool
    if integers and classes.shape == query.indices.shape and bool(((classes >= 0) & (classes < num_classes)).all()):
        return classes.long()
    raise ValueError(
        f"batch_query(answer=...): asked about the points {query.indices.tolist()} it answered {classes.tolist()}. "
        f"One class in [0, {num_classes}) for each of them is needed."
    )


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class DiffusionSelector(ScoreSelector):
    """Ask where the diffused labels are closest to zero: the method of the paper, from embeddings to a query.

    argmin_i min_c |χ_ic| after T steps of χ ← M χ with labels held fixed, a mini-batch at a time; before that, the
    points no label reaches, largest Σ_j W_ij first. `build_graph` has W, `diffuse` has χ, `batch_query` the choice.

    Args:
        mini_batch: P, the points chosen between two diffusions.
        neighbors: K of the graph. By default ⌈2 ln n⌉.
        steps: T of the diffusion. By default round(log_K n).
        soft_start: Unlabeled points start from the model's probabilities, 2f(x) - 1, in every query after the first
            (appendix B.2). The first one starts from zero, since the first model is poor.
        shrink_below: δ of appendix B.3.
        backend: The nearest-neighbor search.

    Needs embeddings, and logits for a soft start. Cost: `build_graph` once, then `batch_query`.
    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning (2003.10339), Algorithm 1.
    """

    mini_batch: int = 1
    neighbors: int | None = None
    steps: int | None = None
    soft_start: bool = False
    shrink_below: float | None = None
    backend: Backend = "auto"
    asks_during_query: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("DiffusionSelector", "mini_batch", self.mini_batch)
        check_neighbors("DiffusionSelector", self.neighbors)
        if self.steps is not None:
            check_count("DiffusionSelector", "steps", self.steps)
        check_flag("DiffusionSelector", "soft_start", self.soft_start)
        check_shrink_below("DiffusionSelector", self.shrink_below)
        check_backend("DiffusionSelector", self.backend)

    def check_pool(self, num_points: int) -> None:
        """Refuse a pool that this selector could not choose from, before a model is trained on it."""
        check_neighbors("DiffusionSelector", self.neighbors, num_points)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"embeddings", "logits"} if self.soft_start else {"embeddings"})

    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        """The position of each point in the order of the criterion, before any answer; infinite if labeled."""
        size = max(1, snapshot.num_unlabeled)
        order = replace(self, mini_batch=size)(snapshot, size, timer=timer).indices
        position = torch.full_like(snapshot.labels, float("inf"), dtype=wide_dtype(snapshot.labels.device))
        position[order] = torch.arange(len(order), device=order.device).to(position.dtype)
        return position

    def __call__(
        self,
        snapshot: Snapshot,
        size: int,
        *,
        answer: Answer | None = None,
        generator: torch.Generator | None = None,
        timer: StageTimer | None = None,
    ) -> Query:
        timer = timer or StageTimer()
        soft = self.soft_start and snapshot.queries_before > 0
        embeddings = require(snapshot.embeddings, "embeddings")
        graph = timed_graph(timer, build_graph, embeddings, self.neighbors, backend=self.backend, ranks=snapshot.ranks)
        with timer.stage("query"):
            return batch_query(
                graph,
                snapshot.labels,
                snapshot.num_classes,
                size=size,
                mini_batch=self.mini_batch,
                steps=self.steps,
                answer=answer,
                soft_labels=snapshot.probabilities if soft else None,
                shrink_below=self.shrink_below,
                progress=timer.track,
            )
