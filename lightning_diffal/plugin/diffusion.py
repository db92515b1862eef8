"""The callback of the paper's method."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.graph.knn.registry import Backend
from lightning_diffal.plugin.batches import Forward
from lightning_diffal.plugin.callback import ActiveLearning
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass
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
        backend: Who searches the neighbors: "auto", "torch", "cluster" or "faiss".

    All other arguments are those of `ActiveLearning`.
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
        layer: str | None = None,
        soft_start: bool = False,
        shrink_below: float | None = None,
        initial: int | PerClass | list[int] | None = None,
        oracle: Callable[..., Any] | None = None,
        backend: Backend = "auto",
        seed: int = 0,
        forward: Forward | None = None,
        pool: Dataset[Any] | DataLoader[Any] | None = None,
        pool_batch_size: int | None = None,
        num_classes: int | None = None,
        stop_when: Callable[[History], bool] | None = None,
        warm_start: bool = False,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(
            query_size,
            budget,
            selector=DiffusionSelector(
                mini_batch=mini_batch,
                neighbors=neighbors,
                steps=steps,
                soft_start=soft_start,
                shrink_below=shrink_below,
                backend=backend,
            ),
            initial=initial,
            layer=layer,
            forward=forward,
            pool=pool,
            pool_batch_size=pool_batch_size,
            oracle=oracle,
            num_classes=num_classes,
            stop_when=stop_when,
            warm_start=warm_start,
            folder=folder,
            seed=seed,
        )
