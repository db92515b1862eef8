"""The selectors by their names on the command line."""

from collections.abc import Callable

from lightning_diffal.selectors.badge import BADGESelector
from lightning_diffal.selectors.bait import BAITSelector
from lightning_diffal.selectors.bald import BALDSelector
from lightning_diffal.selectors.base import Selector
from lightning_diffal.selectors.coreset import CoresetSelector
from lightning_diffal.selectors.coverage import CoverageSelector
from lightning_diffal.selectors.diffusion import DiffusionSelector
from lightning_diffal.selectors.dirichlet import DirichletSelector
from lightning_diffal.selectors.local_max import LocalMaxSelector
from lightning_diffal.selectors.poisson import PoissonSelector
from lightning_diffal.selectors.probcover import ProbCoverSelector
from lightning_diffal.selectors.random import RandomSelector
from lightning_diffal.selectors.typiclust import TypiClustSelector
from lightning_diffal.selectors.uherding import UHerdingSelector
from lightning_diffal.selectors.uncertainty import EntropySelector, MarginSelector, UncertaintySelector
from lightning_diffal.studies.definitions import Study

Maker = Callable[[Study], Selector]

# The selectors the paper compares, in its order.
PAPER_SELECTORS: dict[str, Maker] = {
    "diffusion": lambda study: DiffusionSelector(
        mini_batch=study.mini_batch,
        neighbors=study.neighbors,
        steps=study.steps,
        soft_start=study.soft_start,
        shrink_below=study.shrink_below,
    ),
    "random": lambda study: RandomSelector(),
    "uncertainty": lambda study: UncertaintySelector(),
    "margin": lambda study: MarginSelector(),
    "entropy": lambda study: EntropySelector(),
    "coreset": lambda study: CoresetSelector(),
    "dropout-uncertainty": lambda study: UncertaintySelector(passes=study.passes),
    "dropout-entropy": lambda study: EntropySelector(passes=study.passes),
}
# Graphs use the study's K; all other parameters are those of each selector's own paper.
SELECTORS: dict[str, Maker] = PAPER_SELECTORS | {
    "coverage": lambda study: CoverageSelector(neighbors=study.neighbors),
    "bald": lambda study: BALDSelector(passes=study.passes),
    "badge": lambda study: BADGESelector(),
    "bait": lambda study: BAITSelector(),
    "typiclust": lambda study: TypiClustSelector(),
    "typiclust-features": lambda study: TypiClustSelector(on="features"),
    "uherding": lambda study: UHerdingSelector(),
    "probcover": lambda study: ProbCoverSelector(),
    "poisson": lambda study: PoissonSelector(neighbors=study.neighbors),
    "dirichlet": lambda study: DirichletSelector(neighbors=study.neighbors),
    "localmax": lambda study: LocalMaxSelector(of=MarginSelector(), neighbors=study.neighbors),
    "localmax-poisson": lambda study: LocalMaxSelector(
        of=PoissonSelector(neighbors=study.neighbors), neighbors=study.neighbors
    ),
    "localmax-dirichlet": lambda study: LocalMaxSelector(
        of=DirichletSelector(neighbors=study.neighbors), neighbors=study.neighbors
    ),
}
