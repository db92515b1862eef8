"""`features="auto"` on several ranks, after a kill, and beside selectors that need no features."""

import hashlib
import json
import os
import signal

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from lightning_diffal import ActiveLearning, build_graph
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.selectors import CoverageSelector, RandomSelector
from tests.plugin.rank_processes import run_ranks
from tests.plugin.test_features import Kept
from tests.plugin.test_learn_from_graph import Classifier, Digits, digits
from tests.plugin.toy_model import quiet

pytestmark = pytest.mark.filterwarnings("ignore")


class Squeezed(nn.Module):
    """One number of each point: what is left tells few classes apart."""

    def forward(self, x):
        return x[:, 20:21].expand(-1, 16) * torch.arange(1, 17)


class Poor(Classifier):
    """Learns nothing, so that ranks choose as one process does. May be killed in its second fit."""

    def __init__(self, killed_rank=None):
        super().__init__()
        self.net = nn.Sequential(Squeezed(), nn.Linear(16, 10))
        self.killed_rank = killed_rank

    def on_train_start(self):
        super().on_train_start()
        if len(self.fits) == 2 and self.killed_rank == self.global_rank:
            os.kill(os.getpid(), signal.SIGKILL)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


def run(folder, model, selector=None, count=200, learn_from_graph=True, **options):
    active = ActiveLearning(
        20, 70, initial=30, selector=selector or CoverageSelector(), features="auto", learn_from_graph=learn_from_graph
    )
    options = {"max_epochs": 1, "limit_val_batches": 0, "logger": CSVLogger(folder)} | options
    trainer = quiet(folder, active, **options)
    active.fit(trainer, model, DataLoader(Digits(count), batch_size=10, shuffle=True))
    return active


def lines_of(folder):
    lines = (folder / "active_learning" / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def decisions(folder):
    return [
        (line["indices"], line.get("feature_accuracy"), line.get("diffused", {}).get("points"))
        for line in lines_of(folder)
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run(folder, Poor())
    return decisions(folder)


def test_the_choice_is_made_from_the_labels_there_are(alone):
    judged = [accuracy for _, accuracy, _ in alone if accuracy]
    assert [set(accuracy) for accuracy in judged] == [{"inputs", "model"}, {"inputs", "model", "embedding"}]
    for accuracy in judged:
        assert accuracy["inputs"] > accuracy["model"] + 0.2


def test_an_embedding_is_judged_by_points_that_it_was_not_trained_on(tmp_path, caplog):
    with caplog.at_level("INFO"):
        active = run(tmp_path, Classifier(), count=400, learn_from_graph=False, max_epochs=60)
    labels = active.state.pool.labels
    first, second = active.history.records[1:3]
    before_second = torch.where(torch.isin(torch.arange(400), torch.tensor(second.indices)), -1, labels)
    separated = leave_one_out(build_graph(active.embeddings, None), before_second, 10).accuracy
    assert separated > first.feature_accuracy["inputs"], "by its own training points it would be the best"
    assert set(first.feature_accuracy) == {"inputs", "model"}, "no model has predicted anything yet"
    right = torch.tensor(first.predicted) == labels[first.indices]
    assert second.feature_accuracy["embedding"] == pytest.approx(right.double().mean().item())
    assert caplog.text.count('features="auto": inputs, by') == 2
    assert torch.equal(active.state.features, digits()[0][:400])


class Loud(Digits):
    """Digits beside numbers a hundred times as large that mean nothing."""

    def __init__(self, count):
        super().__init__(count)
        self.x = self.x.clone()
        self.x[:, :8] = 100 * torch.randn(count, 8, generator=torch.Generator().manual_seed(0))


class Normalizing(Classifier):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(64), *self.net)


def test_the_embedding_is_taken_where_models_predict_better_than_any_graph(tmp_path, caplog):
    active = ActiveLearning(60, 160, initial=40, selector=Kept(), features="auto")
    trainer = quiet(tmp_path, active, max_epochs=20, limit_val_batches=0)
    with caplog.at_level("INFO"):
        history = active.fit(trainer, Normalizing(), DataLoader(Loud(400), batch_size=10, shuffle=True))
    assert history.records[2].feature_accuracy["embedding"] > history.records[2].feature_accuracy["inputs"] + 0.2
    assert 'features="auto": embedding, by' in caplog.text
    first, second = active.config.selector.function.snapshots
    assert not torch.equal(first.features, first.embeddings)
    assert torch.equal(second.features, second.embeddings)


def on_two_ranks(folder, model):
    """What each rank took for features and points to train on, and how it ended."""

    def rank():
        active = run(folder, model(), strategy="ddp", devices=2)
        state = active.state
        features = hashlib.sha256(state.features.numpy().tobytes()).hexdigest()
        note = [features, state.diffused.rows.tolist(), [record.feature_accuracy for record in active.history.records]]
        (folder / f"rank-{os.environ['RANK']}").write_text(json.dumps(note))

    ended = run_ranks(folder, rank)
    notes = [folder / f"rank-{number}" for number in (0, 1)]
    return ended, [json.loads(note.read_text()) for note in notes if note.exists()]


@pytest.mark.parametrize("killed_rank", [None, 1])
def test_two_ranks_decide_as_one_process_does_also_after_a_kill(tmp_path, alone, killed_rank):
    if killed_rank is not None:
        ended, notes = on_two_ranks(tmp_path, lambda: Poor(killed_rank))
        assert ended[killed_rank] == signal.SIGKILL
        assert ended[1 - killed_rank] is not None
        assert notes == []
        assert decisions(tmp_path) == alone[:2], "killed in the second fit"
    ended, notes = on_two_ranks(tmp_path, Poor)
    assert ended == [None, None]
    assert decisions(tmp_path) == alone
    assert notes[0] == notes[1]
    assert notes[0][0] == hashlib.sha256(digits()[0][:200].numpy().tobytes()).hexdigest()
    logged = "".join(path.read_text() for path in tmp_path.rglob("metrics.csv"))
    assert "active/feature_accuracy_inputs" in logged
    assert "active/feature_accuracy_embedding" in logged


def test_a_selector_that_needs_no_features_leaves_the_comparison_to_the_graph_that_is_learned_from(tmp_path):
    class Scrambled(Digits):
        """Inputs whose neighbors mean nothing, and a model that unscrambles them."""

        def __init__(self, count):
            super().__init__(count)
            self.x = torch.cat([self.x, 50 * torch.randn(count, 64, generator=torch.Generator().manual_seed(0))], 1)

    class Pretrained(Classifier):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(First(), nn.Linear(64, 10))

    class First(nn.Module):
        def forward(self, x):
            return x[:, :64]

    active = ActiveLearning(
        20, 70, initial=30, selector=RandomSelector(), features="auto", feature_dim=None, learn_from_graph=True
    )
    trainer = quiet(tmp_path, active, max_epochs=1, limit_val_batches=0)
    history = active.fit(trainer, Pretrained(), DataLoader(Scrambled(200), batch_size=10, shuffle=True))
    first, second = (record.feature_accuracy for record in history.records[1:3])
    assert set(first) == set(second) == {"inputs", "model"}, "the pool is not embedded for it"
    assert first["model"] > first["inputs"] + 0.2
    assert history.records[1].diffused["points"] == 0, "of two kinds the first, before there is a comparison"
    assert history.records[2].diffused["points"] > 20
    plain = ActiveLearning(20, 70, initial=30, selector=RandomSelector(), features="auto", folder=tmp_path / "plain")
    history = plain.fit(
        quiet(tmp_path, plain, max_epochs=1, limit_val_batches=0), Classifier(), DataLoader(Digits(200), 10)
    )
    assert [record.feature_accuracy for record in history.records] == [{}] * 4, "nothing reads them"
