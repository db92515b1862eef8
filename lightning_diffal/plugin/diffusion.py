"""The callback of label diffusion: the paper's criterion, and diffused coverage."""

from dataclasses import fields
from typing import Any, Literal, TypeAlias, get_args

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.graph.knn.registry import Backend
from lightning_diffal.plugin.callback import ActiveLearning
from lightning_diffal.plugin.features.source import FeatureArgument
from lightning_diffal.selectors.base import Selector
from lightning_diffal.selectors.coverage import CoverageSelector
from lightning_diffal.selectors.diffusion import DiffusionSelector

Criterion: TypeAlias = Literal["auto", "coverage", "paper"]


class DiffusionActiveLearning(ActiveLearning):
    """Active learning by label diffusion: ask first where no label has reached, later where classes are torn.

    The paper's criterion: after each fit the pool is embedded by the network's penultimate layer and joined into a k-NN
    graph. Known labels diffuse over it, χ ← D⁻¹W χ, for T steps; the points with the smallest min_c |χ_c| are asked.
    With fixed features (`features=...`): diffused coverage on their graph, see `CoverageSelector`.

    Args:
        criterion: "coverage", "paper", or "auto": coverage where there are fixed features, else the paper's, since
            coverage of the learned embedding was behind it. `mini_batch`, `steps`, `soft_start`, `shrink_below` and
            `backend` are for the paper's.
        mini_batch: P, the points chosen between two diffusions. Small ones are more diverse, and slower.
        neighbors: K of the graph. By default ⌈2 ln n⌉.
        steps: T of the diffusion. By default round(log_K n).
        soft_start: Unlabeled points start from the model's probabilities in every query after the first.
        shrink_below: δ. T shrinks once fewer than δ·n points are unreached.
        features: Fixed features of the pool, see `ActiveLearning`.
        backend: How neighbors are searched: "exact", "torch", "cluster" or "faiss", all exact; "approximate" finds at
            least 97% of them faster, and how many is `graph_recall` in the record of the round. "auto" is exact but for
            very large pools, see `build_graph`.
        options: All other arguments of `ActiveLearning`: `initial`, `layer`, `oracle`, `seed`, `folder`, ...

    Reference: Kushnir & Venturi, Diffusion-based Deep Active Learning.
    """

    @skip_type_check
    def __init__(
        self,
        query_size: int,
        budget: int,
        *,
        criterion: Criterion = "auto",
        mini_batch: int = 1,
        neighbors: int | None = None,
        steps: int | None = None,
        soft_start: bool = False,
        shrink_below: float | None = None,
        backend: Backend = "auto",
        features: FeatureArgument = None,
        **options: Any,  # the command line finds them by reading this call of super().__init__
    ) -> None:
        if "selector" in options:
            raise TypeError("DiffusionActiveLearning(selector=...): ActiveLearning takes any selector.")
        of_paper: dict[str, Any] = {
            "mini_batch": mini_batch,
            "steps": steps,
            "soft_start": soft_start,
            "shrink_below": shrink_below,
            "backend": backend,
        }
        selector: Selector
        if covers(criterion, features):
            check_left_out(of_paper, criterion)
            selector = CoverageSelector(neighbors=neighbors)
        else:
            selector = DiffusionSelector(neighbors=neighbors, **of_paper)
        super().__init__(query_size, budget, selector=selector, features=features, **options)


@skip_type_check
def covers(criterion: Criterion, features: Any) -> bool:
    """Whether points are chosen by diffused coverage."""
    if criterion not in get_args(Criterion):
        raise ValueError(
            f'DiffusionActiveLearning(criterion={criterion!r}): "auto", "coverage" or "paper" is needed. '
            "ActiveLearning takes any selector."
        )
    return criterion == "coverage" or (criterion == "auto" and features is not None)


def check_left_out(of_paper: dict[str, Any], criterion: Criterion) -> None:
    """Refuse arguments that mean nothing to coverage, unless they are as by default: a command line passes all."""
    defaults = {field.name: field.default for field in fields(DiffusionSelector)}
    for name, value in of_paper.items():
        if value != defaults[name]:
            why = " With features, criterion='auto' is coverage." if criterion == "auto" else ""
            raise ValueError(
                f"DiffusionActiveLearning({name}={value!r}, criterion={criterion!r}): coverage takes no {name}.{why} "
                "criterion='paper' does."
            )
