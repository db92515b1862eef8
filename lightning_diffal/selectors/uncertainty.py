"""Ask where the model is least certain: three measures, of one forward pass or of many with dropout."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.numerics.precision import at_least_float32
from lightning_diffal.numerics.tiles import tile_height
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import ScoreSelector
from lightning_diffal.selectors.snapshot import Snapshot, require

# Probabilities computed at a time, so that memory does not grow with n · c.
BLOCK_ENTRIES = 2**17
# With fewer classes than this the softmax is taken over columns. Its last digit differs from `softmax(dim=1)`, and with
# it the order of nearly equal scores; the committed results were computed this way.
MAX_CLASSES_BY_COLUMN = 64


def probabilities_of(logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    logits = at_least_float32(logits)
    return logits.T.contiguous().softmax(dim=0).T if logits.shape[1] < MAX_CLASSES_BY_COLUMN else logits.softmax(dim=1)


def entropy(probabilities: Float[Tensor, "*a c"]) -> Float[Tensor, "*a"]:
    """-Σ_c p_c ln p_c, in nats, where 0 ln 0 = 0."""
    # Not torch.special.entr: its last digit differs, and with it the order of nearly equal scores in committed results.
    logarithm = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log_()
    return -(logarithm.mul_(probabilities).sum(dim=-1))


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class ProbabilitySelector(ScoreSelector):
    """Asks by a measure of the model's probabilities.

    Args:
        passes: Forward passes with only the dropout layers active, whose softmax is averaged (Gal & Ghahramani,
            1506.02142; 50 is usual). None means one pass in eval mode.
    """

    passes: int | None = None

    def __post_init__(self) -> None:
        if self.passes is not None:
            check_count(type(self).__name__, "passes", self.passes)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"logits"} if self.passes is None else {"stochastic"})

    def score(self, snapshot: Snapshot, timer: StageTimer) -> Float[Tensor, " n"]:
        with timer.stage("score"):
            if self.passes is not None:
                return self.certainty(require(snapshot.stochastic, "stochastic").probabilities)
            logits, height = require(snapshot.logits, "logits"), tile_height(snapshot.num_classes, BLOCK_ENTRIES)
            scores = torch.empty_like(at_least_float32(logits[:, 0]))
            for block, part in zip(logits.split(height), scores.split(height), strict=True):
                part.copy_(self.certainty(probabilities_of(block)))
            return scores

    @abstractmethod
    def certainty(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        """How certain the model is: low where it should be asked."""


class UncertaintySelector(ProbabilitySelector):
    """Ask where the predicted class is least probable: lowest max_c p_c, "least confident".

    Needs logits, or `passes` stochastic ones. Cost: O(n c).
    Reference: Lewis & Gale, A Sequential Algorithm for Training Text Classifiers, 1994 (cmp-lg/9407020).
    """

    def certainty(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        return probabilities.amax(dim=1)


class MarginSelector(ProbabilitySelector):
    """Ask where the model's two most probable classes are closest: lowest p₁ - p₂, or p₁ if there is one class.

    Needs logits, or `passes` stochastic ones. Cost: O(n c).
    Reference: Scheffer, Decomain & Wrobel, Active Hidden Markov Models for Information Extraction, 2001.
    """

    def certainty(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        if probabilities.shape[1] == 1:
            return probabilities[:, 0]
        first, second = probabilities.topk(2, dim=1).values.unbind(dim=1)
        return first - second


class EntropySelector(ProbabilitySelector):
    """Ask where the model's classes are most evenly probable: highest -Σ_c p_c ln p_c.

    Needs logits, or `passes` stochastic ones. Cost: O(n c).
    Reference: Settles, Active Learning Literature Survey, 2009, section 3.1.
    """

    def certainty(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        return -entropy(probabilities)
