"""Ask where passes with dropout disagree."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import ScoreSelector
from lightning_diffal.selectors.snapshot import Snapshot, require
from lightning_diffal.selectors.uncertainty import entropy


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class BALDSelector(ScoreSelector):
    """Ask where label and weights have the highest mutual information.

    I = H(p̄) - (1/S) Σ_s H(p_s) over S passes p_s with mean p̄, H the entropy in nats. High where each pass is confident
    and they disagree; low where every pass is uncertain, since no label would help there.

    Needs `passes` stochastic passes. Cost: O(n c) in addition to the passes.
    Reference: Houlsby et al., 1112.5745; with dropout Gal, Islam & Ghahramani, 1703.02910.
    """

    passes: int = 50
    needs: ClassVar[frozenset[str]] = frozenset({"stochastic"})

    def __post_init__(self) -> None:
        check_count("BALDSelector", "passes", self.passes)

    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        with timer.stage("score"):
            passes = require(snapshot.stochastic, "stochastic")
            return passes.expected_entropy - entropy(passes.probabilities)
