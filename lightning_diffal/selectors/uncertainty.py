"""Ask where the model is least sure: three measures, each of one pass or of many with dropout."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.score import ScoreSelector
from lightning_diffal.selectors.snapshot import Snapshot, in_full, require

# Probabilities held at a time, which stay in the cache.
BLOCK_ENTRIES = 2**17
# Torch is slow over rows shorter than this, several times slower than class by class.
SHORT_ROW = 64


def probabilities_of(logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """Their softmax, in memory class by class where there are few."""
    logits = in_full(logits)
    return logits.T.contiguous().softmax(dim=0).T if logits.shape[1] < SHORT_ROW else logits.softmax(dim=1)


def confidence(probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """max_c p_c."""
    return probabilities.amax(dim=1)


def margin(probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """p₁ - p₂, the two largest probabilities; p₁ where there is one class only."""
    if probabilities.shape[1] >= SHORT_ROW:
        largest = probabilities.topk(2, dim=1).values
        return largest[:, 0] - largest[:, 1]
    classes = probabilities.T.contiguous()
    best, second = classes[0], torch.zeros_like(classes[0])
    for other in classes[1:]:
        second = torch.maximum(second, torch.minimum(best, other))
        best = torch.maximum(best, other)
    return best - second


def entropy(probabilities: Float[Tensor, "*a c"]) -> Float[Tensor, "*a"]:
    """-Σ_c p_c ln p_c, in nats, where 0 ln 0 = 0."""
    # Half the time of torch.special.entr.
    logarithm = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log_()
    return -(logarithm.mul_(probabilities).sum(dim=-1))


@skip_type_check
@dataclass(frozen=True, kw_only=True)
class ProbabilitySelector(ScoreSelector):
    """Asks by a measure of the model's probabilities.

    Args:
        passes: Forward passes with only the dropout layers awake, whose softmax is averaged (Gal & Ghahramani,
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
                return self.sureness(require(snapshot.stochastic, "stochastic").probabilities)
            logits, height = require(snapshot.logits, "logits"), max(1, BLOCK_ENTRIES // snapshot.num_classes)
            scores = torch.empty_like(in_full(logits[:, 0]))
            for block, part in zip(logits.split(height), scores.split(height), strict=True):
                part.copy_(self.sureness(probabilities_of(block)))
            return scores

    @abstractmethod
    def sureness(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        """How sure the model is: low where it should be asked."""


class UncertaintySelector(ProbabilitySelector):
    """Ask where the likeliest class is least likely: lowest max_c p_c, "least confident".

    Needs logits, or `passes` stochastic ones. Cost: O(n c).
    Reference: Lewis & Gale, A Sequential Algorithm for Training Text Classifiers, 1994 (cmp-lg/9407020).
    """

    def sureness(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        return confidence(probabilities)


class MarginSelector(ProbabilitySelector):
    """Ask where the model's two best classes are closest: lowest p₁ - p₂.

    Needs logits, or `passes` stochastic ones. Cost: O(n c).
    Reference: Scheffer, Decomain & Wrobel, Active Hidden Markov Models for Information Extraction, 2001.
    """

    def sureness(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        return margin(probabilities)


class EntropySelector(ProbabilitySelector):
    """Ask where the model's classes are most evenly likely: highest -Σ_c p_c ln p_c.

    Needs logits, or `passes` stochastic ones. Cost: O(n c).
    Reference: Settles, Active Learning Literature Survey, 2009, section 3.1.
    """

    def sureness(self, probabilities: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
        return -entropy(probabilities)
