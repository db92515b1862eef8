"""What users see: bars, a line for each round, numbers in any logger, a history to print and to draw."""

import csv
import json
import logging

import matplotlib as mpl
import pytest
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment

from lightning_diffal import ActiveLearning, History
from tests.plugin.toy_model import Data, Net, learner, quiet

mpl.use("Agg")


class Noted(Logger):
    """A logger of somebody else's."""

    def __init__(self):
        super().__init__()
        self.metrics, self.saved = [], 0

    @property
    def name(self):
        return "noted"

    @property
    def version(self):
        return 0

    @property
    @rank_zero_experiment
    def experiment(self):
        return self

    def log_metrics(self, metrics, step=None):
        self.metrics.append((step, metrics))

    def log_hyperparams(self, params, *args, **kwargs):
        pass

    def save(self):
        self.saved += 1


def test_every_logger_gets_the_numbers_of_a_round(tmp_path):
    noted, active = Noted(), learner()
    table = CSVLogger(tmp_path, name="csv", version=0)
    history = active.fit(quiet(tmp_path, active, logger=[noted, table]), Net(), datamodule=Data())
    ours = [(step, metrics) for step, metrics in noted.metrics if "active/labels" in metrics]
    assert [step for step, _ in ours] == [1, 2, 3, 4]
    assert [metrics["active/labels"] for _, metrics in ours] == [9, 17, 25, 33]
    for (_, metrics), row in zip(ours, history, strict=True):
        assert metrics["active/val_acc"] == pytest.approx(row["val_acc"])
        assert metrics["active/seconds_fit"] > 0
        assert metrics["active/classes_found"] == 3
    for _, metrics in ours[:-1]:
        assert metrics["active/explored"] + metrics["active/refined"] == 1
        assert 0 <= metrics["active/unreached"] <= 1
        assert {f"active/seconds_{stage}" for stage in ("embedding", "graph", "query")} <= metrics.keys()
    assert ours[0][1]["active/explored"] == history[0]["explored"] / 8
    assert ours[0][1]["active/unreached"] == history[0]["unreached"] / 120
    with (tmp_path / "csv" / "version_0" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["active/labels"]]
    assert [(int(row["step"]), float(row["active/labels"])) for row in rows] == [(1, 9), (2, 17), (3, 25), (4, 33)]


def test_one_summary_line_for_each_round(tmp_path, caplog):
    active = learner(budget=17)
    with caplog.at_level(logging.INFO):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    first, last = [message for message in caplog.messages if message.startswith("Active learning")]
    assert "round 1: fitted on 9 labels (loss" in first
    assert "asked 8 more" in first
    assert "of them where no label had reached" in first
    assert "embedding" in first
    assert "round 2: fitted on 17 labels" in last
    assert "no query, the budget is spent" in last


def test_a_tqdm_bar_for_each_stage(tmp_path, capfd):
    active = learner(budget=17, mini_batch=2, pool_batch_size=8)
    trainer = quiet(tmp_path, active, TQDMProgressBar(), enable_progress_bar=True)
    active.fit(trainer, Net(), datamodule=Data())
    seen = "".join(capfd.readouterr())
    for stage in ("Embedding", "Graph", "Query"):
        assert f"{stage}:" in seen
    assert "/15 [" in seen, "batches of the pool"
    assert "/4 [" in seen, "mini-batches"


def test_a_rich_bar_for_each_stage(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    active = learner(budget=17)
    trainer = quiet(tmp_path, active, RichProgressBar(), enable_progress_bar=True)
    history = active.fit(trainer, Net(), datamodule=Data())
    assert history.labels == [9, 17]
    seen = "".join(capfd.readouterr())
    for stage in ("Embedding", "Graph", "Query"):
        assert stage in seen


def test_no_bar_where_the_trainer_has_none(tmp_path, capfd):
    active = learner(budget=17)
    active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert "Embedding" not in "".join(capfd.readouterr())


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    active = learner()
    return active.fit(quiet(tmp_path_factory.mktemp("run"), active), Net(), datamodule=Data())


def test_a_history_prints_as_a_table(history):
    header, rule, *rows = str(history).splitlines()
    assert header.split()[:4] == ["round", "labels", "loss", "val_acc"]
    assert set(rule) == {"─", " "}
    assert [row.split()[:2] for row in rows] == [["1", "9"], ["2", "17"], ["3", "25"], ["4", "33"]]
    assert len({len(line) for line in (header, rule, *rows)}) == 1, "columns stand under each other"
    assert repr(history) == str(history)
    assert str(History([])) == "no rounds yet"


def test_a_history_gives_a_data_frame(history):
    frame = history.frame()
    assert frame["labels"].tolist() == [9, 17, 25, 33]
    assert frame["val_acc"].tolist() == history.metric("val_acc")


def test_a_history_draws_accuracy_against_labels(history, tmp_path):
    axes = history.plot()
    line = axes.lines[0]
    assert list(line.get_xdata()) == [9, 17, 25, 33]
    assert list(line.get_ydata()) == history.metric("val_acc")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("labels", "val_acc")
    assert history.plot("loss", ax=axes) is axes
    axes.figure.savefig(tmp_path / "history.png")
    with pytest.raises(KeyError, match=r"'val_f1' was never logged. There are loss, val_acc"):
        history.plot("val_f1")


def test_a_model_that_logs_nothing_has_a_history_too(tmp_path):
    class Silent(Net):
        def log(self, *args, **kwargs):
            pass

    active = learner(budget=17)
    history = active.fit(quiet(tmp_path, active), Silent(), datamodule=Data())
    assert history.labels == [9, 17]
    with pytest.raises(ValueError, match="No metric was logged"):
        history.plot()


def test_selectors_that_do_not_count_reach_say_nothing_of_it(tmp_path):
    active = ActiveLearning(
        query_size=8, budget=17, initial=9, selector=lambda snapshot, size: snapshot.unlabeled[:size]
    )
    noted = Noted()
    history = active.fit(quiet(tmp_path, active, logger=noted), Net(), datamodule=Data())
    assert history[0]["unreached"] is None
    assert not any("active/explored" in metrics for _, metrics in noted.metrics)


def test_the_recall_of_approximate_graphs_is_logged_and_kept_in_the_ledger(tmp_path):
    noted, active = Noted(), learner(budget=17, backend="approximate", folder=tmp_path)
    active.fit(quiet(tmp_path, active, logger=[noted]), Net(), datamodule=Data())
    first, last = (json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()[-2:])
    assert first["metrics"]["graph_recall"] == 1.0, "in so small a pool every point is compared"
    assert "graph_recall" not in last["metrics"], "the last round has no query"
    assert [metrics["active/graph_recall"] for _, metrics in noted.metrics if "active/graph_recall" in metrics] == [1.0]
