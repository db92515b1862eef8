"""One run, through the callback and a real Trainer."""

import platform
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning as L  # noqa: N812
import torch
from torch.utils.data import DataLoader

import lightning_diffal
from lightning_diffal.plugin.callback import ActiveLearning
from lightning_diffal.pool.initial import PerClass
from lightning_diffal.pool.ledger import Record
from lightning_diffal.selectors.base import Selector
from lightning_diffal.studies.data import Points, as_it_is, on_the_board
from lightning_diffal.studies.named_selectors import SELECTORS
from lightning_diffal.studies.results import Result, Round
from lightning_diffal.studies.runs import Run, draw_data
from lightning_diffal.studies.studies import Study
from lightning_diffal.studies.training import ACCURACY, AT_A_TIME, Classifier, quiet_trainer


def build_model(study: Study, selector: Selector, shape: tuple[int, ...], num_classes: int, seed: int) -> Classifier:
    """The network of a seed. Selectors by dropout get their layers into it; the first weights are the same."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        layers = study.network.build(shape, num_classes, dropout="stochastic" in selector.needs)
    return Classifier(layers, study.optimizer, study.batch_size)


class Counting(L.Callback):
    """Tells how many rounds a run has behind it, those of an earlier process included."""

    def __init__(self, active: ActiveLearning, told: Callable[[int], Any]) -> None:
        self.active, self.told = active, told

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.told(len(self.active.history))

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.told(len(self.active.history))


def perform(run: Run, told: Callable[[int], Any] = lambda rounds: None) -> Path:
    """Run to the end, from wherever the ledger says it is, and write the result.

    Args:
        told: Told the number of rounds that are over, whenever it grows.
    """
    study, selector, classes = run.study, SELECTORS[run.selector](run.study), run.settings["num_classes"]
    pool, test = draw_data(study, run.seed, run.data)
    active = ActiveLearning(
        query_size=study.query_size,
        budget=study.budget,
        selector=selector,
        initial=PerClass(study.first),
        pool_batch_size=study.batch_of_pool,
        num_classes=classes,
        folder=run.memory,
        seed=run.seed,
    )
    history = active.fit(
        quiet_trainer(study.epochs, run.memory, [active, Counting(active, told)]),
        build_model(study, selector, tuple(pool.x.shape[1:]), classes, run.seed),
        DataLoader(pool, AT_A_TIME * study.batch_size, shuffle=True, collate_fn=as_it_is),
        DataLoader(test, study.batch_of_pool, collate_fn=as_it_is),
    )
    path = result_of(run, history.records, pool).write(run.out)
    shutil.rmtree(run.memory)
    return path


def accuracy_of(record: Record) -> float:
    accuracy = record.metrics.get(ACCURACY)
    if accuracy is None:
        raise RuntimeError(f"round {record.round}: the fit ended without an accuracy that is a number.")
    return accuracy


def result_of(run: Run, records: list[Record], pool: Points) -> Result:
    first, *fitted = records
    points = {}
    if run.study.squares is not None:
        labeled = [index for record in records for index in record.indices]
        places = on_the_board(pool.x[labeled], run.study.squares).tolist()
        points = {str(i): [round(part, 4) for part in place] for i, place in zip(labeled, places, strict=True)}
    return Result(
        study=run.study.name,
        selector=run.selector,
        seed=run.seed,
        settings=run.settings,
        initial=first.indices,
        rounds=[
            Round(
                labels=record.labeled,
                accuracy=round(accuracy_of(record), 6),
                asked=record.indices,
                reached=record.reached,
                unreached=record.unreached,
                seconds={name: round(seconds, 3) for name, seconds in record.seconds.items()},
            )
            for record in fitted
        ],
        points=points,
        versions={
            "lightning-diffal": lightning_diffal.__version__,
            "torch": torch.__version__,
            "lightning": version("lightning"),
            "python": platform.python_version(),
        },
    )
