"""What is to be run: a study with one selector and one seed, and all that decides its outcome. Needs no Lightning."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_diffal.experiments.data import Points, Source, checkerboard, draw_pool, load
from lightning_diffal.experiments.features import frozen
from lightning_diffal.experiments.named_selectors import SELECTORS
from lightning_diffal.experiments.results import result_path
from lightning_diffal.experiments.studies import Study
from lightning_diffal.pool.randomness import seed_of


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that one process needs to know of a run."""

    study: Study
    selector: str
    seed: int
    settings: dict[str, Any]
    data: Path
    out: Path

    @property
    def result(self) -> Path:
        """Where its result will be."""
        return self.out / result_path(self.study.name, self.selector, self.seed, self.settings)

    @property
    def memory(self) -> Path:
        """Where its ledger is until then."""
        return self.out / ".runs" / self.study.name / self.result.stem

    @property
    def fits(self) -> int:
        return self.study.fits(self.settings["num_classes"])

    def __str__(self) -> str:
        return f"{self.study.name}, {self.selector}, seed {self.seed}"


def plan(study: Study, selector: str, seed: int, data: Path, out: Path) -> Run:
    """A run with its settings, refused here if it could not be run. Frozen features are computed now."""
    settings = study.settings() | {"selector": repr(SELECTORS[selector](study)), "num_classes": 2}
    if study.squares is None:
        source = source_of(study, data)
        draw_pool(source, study.pool, seed)
        study.network.build(tuple(source.train.x.shape[1:]), source.num_classes, dropout=False)
        settings |= {"num_classes": source.num_classes, "data": source.digest}
    study.check(settings["num_classes"])
    return Run(study=study, selector=selector, seed=seed, settings=settings, data=data, out=out)


def source_of(study: Study, data: Path) -> Source:
    return frozen(study.dataset, data) if study.features else load(study.dataset, data)


def draw_data(study: Study, seed: int, data: Path) -> tuple[Points, Points]:
    """The pool and the test set of a seed, the same for every selector."""
    if study.squares is not None:
        pool = checkerboard(study.pool, study.squares, seed_of(seed, 0))
        return pool, checkerboard(study.test or 1, study.squares, seed_of(seed, 1))
    source = source_of(study, data)
    return draw_pool(source, study.pool, seed), source.test
