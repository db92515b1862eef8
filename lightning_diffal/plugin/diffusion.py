"""The callback of the paper's method."""

from typing import Any

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.graph.knn.registry import Backend
from lightning_diffal.plugin.callback import ActiveLearning
from lightning_diffal.selectors.diffusion import DiffusionSelector


class DiffusionActiveLearning(ActiveLearning):
    """Active learning by label diffusion: ask first where no label has reached, later where classes are torn.

    After each fit the pool is embedded by the network's penultimate layer and joined into a k-NN graph. Known labels
    diffuse over it, χ ← D⁻¹W χ, for T steps, and the points with the smallest min_c |χ_c| are asked.

    Args:
        mini_batch: P, the points chosen between two diffusions. Small ones are more diverse, and slower.
        neighbors: K of the graph. By default ⌈2 ln n⌉.
        steps: T of the diffusion. By default round(log_K n).
        soft_start: Unlabeled points start from the model's probabilities in every query after the first.
        shrink_below: δ. T shrinks once fewer than δ·n points are unreached.
        backend: How neighbors are searched: "auto", "torch", "cluster" or "faiss", all exact; "approximate" finds at
            least 97% of them several times as fast, and how many is `graph_recall` in the record of the round.
        options: All other arguments of `ActiveLearning`: `initial`, `layer`, `oracle`, `seed`, `folder`, ...

    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning.
    """

    @skip_type_check
    def __init__(
        self,
        query_size: int,
        budget: int,
        *,
        mini_batch: int = 1,
        neighbors: int | None = None,
        steps: int | None = None,
        soft_start: bool = False,
        shrink_below: float | None = None,
        backend: Backend = "auto",
        **options: Any,  # the command line finds them by reading this call of super().__init__
    ) -> None:
        if "selector" in options:
            raise TypeError("DiffusionActiveLearning(selector=...): ActiveLearning takes any selector.")
        selector = DiffusionSelector(
            mini_batch=mini_batch,
            neighbors=neighbors,
            steps=steps,
            soft_start=soft_start,
            shrink_below=shrink_below,
            backend=backend,
        )
        super().__init__(query_size, budget, selector=selector, **options)
