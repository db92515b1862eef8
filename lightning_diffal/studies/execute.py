"""Execute one run, through the callback and a real Trainer."""

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
from lightning_diffal.pool.record import Record
from lightning_diffal.selectors.base import Selector
from lightning_diffal.studies.data import Points, board_coordinates, keep_batch
from lightning_diffal.studies.definitions import Study
from lightning_diffal.studies.results import Result, Round
from lightning_diffal.studies.run_spec import Run, graph_learning, pool_and_test_set
from lightning_diffal.studies.selector_registry import SELECTORS
from lightning_diffal.studies.training import ACCURACY, CALIBRATION_ERROR, STEPS_PER_BATCH, Classifier, silent_trainer


def build_model(study: Study, selector: Selector, shape: tuple[int, ...], num_classes: int, seed: int) -> Classifier:
    """The network of a seed. Selectors that use dropout get dropout layers; the initial weights are the same."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        layers = study.network.build(shape, num_classes, dropout="stochastic" in selector.needs)
    return Classifier(layers, study.optimizer, study.batch_size, num_classes)


class RoundCounter(L.Callback):
    """Reports how many rounds are finished, those of an earlier process included."""

    def __init__(self, active: ActiveLearning, report: Callable[[int], Any]) -> None:
        self.active, self.report = active, report

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.report(len(self.active.history))

    on_fit_end = on_train_start


def execute(run: Run, progress: Callable[[int], Any] = lambda rounds: None) -> Path:
    """Run to the end, from the last round in the ledger, and write the result.

    Args:
        progress: Called with the number of finished rounds whenever it grows.
    """
    study, selector, classes = run.study, SELECTORS[run.selector](run.study), run.settings["num_classes"]
    pool, test = pool_and_test_set(study, run.seed, run.data)
    active = ActiveLearning(
        query_size=study.query_size,
        budget=study.budget,
        selector=selector,
        initial=PerClass(study.first),
        pool_batch_size=study.batch_of_pool,
        candidates=study.candidates,
        num_classes=classes,
        folder=run.run_folder,
        seed=run.seed,
        **graph_arguments(run),
    )
    history = active.fit(
        silent_trainer(study.epochs, run.run_folder, [active, RoundCounter(active, progress)]),
        build_model(study, selector, tuple(pool.x.shape[1:]), classes, run.seed),
        DataLoader(pool, STEPS_PER_BATCH * study.batch_size, shuffle=True, collate_fn=keep_batch),
        DataLoader(test, study.batch_of_pool, collate_fn=keep_batch),
    )
    path = result_of(run, history.records, pool).write(run.out)
    shutil.rmtree(run.run_folder)
    return path


def graph_arguments(run: Run) -> dict[str, Any]:
    """The callback's arguments for fixed features and for learning from the graph, where the run uses them."""
    features = run.settings.get("graph_features", "none")
    learning = {"learn_from_graph": graph_learning(run.study)} if run.study.learn_from_graph else {}
    return learning if features == "none" else learning | {"features": features}


def metric_of(record: Record, name: str) -> float:
    value = record.metrics.get(name)
    if value is None:
        raise RuntimeError(f"round {record.round}: the fit logged no finite {name}.")
    return round(value, 6)


def result_of(run: Run, records: list[Record], pool: Points) -> Result:
    first, *fitted = records
    points = {}
    if run.study.squares is not None:
        labeled = [index for record in records for index in record.indices]
        places = board_coordinates(pool.x[labeled], run.study.squares).tolist()
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
                accuracy=metric_of(record, ACCURACY),
                calibration_error=metric_of(record, CALIBRATION_ERROR),
                asked=record.indices,
                reached=record.reached,
                unreached=record.unreached,
                seconds={name: round(seconds, 3) for name, seconds in record.seconds.items()},
                graph_recall=record.metrics.get("graph_recall"),
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
