"""Training on diffused labels: which points, with which labels, in which batches; and that it does no harm."""

import json
import math
from functools import cache

import lightning as L  # noqa: N812, as Lightning's own documentation does
import numpy as np
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

from lightning_diffal import ActiveLearning, LabeledSampler, LearnFromGraph, People, build_graph
from lightning_diffal.plugin.data.diffused_view import WithDiffused
from lightning_diffal.plugin.data.guard import check_training_loaders
from lightning_diffal.plugin.data.loaders import LabeledView, RelabeledView
from lightning_diffal.plugin.model.earlier_predictions import earlier_predictions
from lightning_diffal.pool.dataset.items import LabelField
from lightning_diffal.selectors import RandomSelector
from tests.diffusion.test_graph_labels import dense_masses
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import quiet

pytestmark = pytest.mark.filterwarnings("ignore")
POISON = 7


@cache
def digits():
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)


class Digits(Dataset):
    """(x, y, index). Of a poisoned one every label is the same, and wrong."""

    def __init__(self, count=400, poisoned=False):
        self.x, self.targets = (part[:count] for part in digits())
        self.poisoned = poisoned
        if poisoned:
            self.targets = torch.full_like(self.targets, POISON)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.targets[index], index


class Classifier(L.LightningModule):
    """Notes the indices and labels of every batch that it trains on."""

    def __init__(self, interrupt_in_fit=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.fits, self.interrupt_in_fit = [], interrupt_in_fit

    def forward(self, x):
        return self.net(x)

    def on_train_start(self):
        self.fits.append([])
        if len(self.fits) == self.interrupt_in_fit:
            raise RuntimeError("killed")

    def training_step(self, batch, batch_idx):
        x, y, index = batch
        self.fits[-1].append((index.tolist(), y.tolist()))
        return cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)

    def accuracy(self):
        x, y = digits()
        with torch.no_grad():
            return float((self(x[800:]).argmax(1) == y[800:]).float().mean())


def fit(folder, dataset=None, loader=None, model=None, epochs=3, **options):
    dataset, model = dataset or Digits(), model or Classifier()
    defaults = {"query_size": 40, "budget": 100, "initial": 100, "features": digits()[0][: len(dataset)]}
    active = ActiveLearning(selector=RandomSelector(), **defaults | {"learn_from_graph": True} | options)
    # One with a LabeledSampler has no batch yet, and so is False.
    loader = DataLoader(dataset, batch_size=10, shuffle=True) if loader is None else loader
    active.fit(quiet(folder, active, max_epochs=epochs, limit_val_batches=0), model, loader)
    return active, model


def labeled_in(active):
    return [index for record in active.history.records[:-1] for index in record.indices]


def test_each_batch_has_three_diffused_points_for_each_labeled_one_with_the_labels_of_the_diffusion(tmp_path):
    truth = digits()[1]
    dataset = Digits(poisoned=True)
    active, model = fit(tmp_path, dataset, oracle=lambda indices: truth[indices].tolist())
    labeled, diffused = labeled_in(active), set(active.state.diffused.rows.tolist())
    assert len(labeled) == 100
    known = torch.full((400,), -1)
    known[labeled] = truth[labeled]
    mass = dense_masses(build_graph(digits()[0][:400], None), known.numpy(), 10, 40)
    mass /= mass.sum(axis=0) ** 0.75
    share = np.sort(mass / mass.sum(axis=1, keepdims=True), axis=1)
    margin = np.where(known.numpy() < 0, share[:, -1] - share[:, -2], -1)
    for label in range(10):
        [rows] = np.nonzero((mass.argmax(axis=1) == label) & (known.numpy() < 0))
        surest = rows[np.argsort(-margin[rows])][: math.ceil(0.8 * len(rows))]
        assert diffused & set(rows.tolist()) == set(surest.tolist()), "the surest four fifths of each class"
    [batches] = model.fits
    assert len(batches) == 30, "three epochs of ten steps, as without"
    seen = set()
    for epoch in range(3):
        of_epoch = [index for indices, _ in batches[10 * epoch : 10 * epoch + 10] for index in indices]
        assert sorted(set(of_epoch) & set(labeled)) == sorted(labeled)
    for indices, labels in batches:
        extra = [index for index in indices if index not in set(labeled)]
        assert len(extra) == len(set(extra)) == 30
        assert len(indices) == 40
        seen |= set(extra)
        for index, label in zip(indices, labels, strict=True):
            assert label == (truth[index] if index in set(labeled) else mass[index].argmax())
    assert seen <= diffused
    assert len(seen) > 100, "other ones in each batch"
    assert sorted(active.state.pool.labeled.tolist()) == sorted(labeled), "diffused labels are no labels"


def test_good_features_help_and_the_run_says_how_much_it_used(tmp_path):
    scores = []
    for seed in (0, 1, 2):
        found = []
        for learn in (False, True):
            _, model = fit(
                tmp_path / f"{seed}{learn}", Digits(800), initial=20, budget=20, seed=seed, epochs=40,
                learn_from_graph=learn,
            )  # fmt: skip
            found.append(model.accuracy())
        scores.append(found[1] - found[0])
    assert min(scores) > 0.02
    assert sum(scores) / 3 > 0.08, scores
    line = json.loads((tmp_path / "2True" / "active_learning" / "rounds.jsonl").read_text().splitlines()[-1])
    assert line["labeled"] == 20
    assert 0.75 * 780 < line["diffused"]["points"] <= 0.85 * 780
    assert 0 < line["diffused"]["share"] <= 3
    assert line["diffused"]["expected_accuracy"] >= 0.3
    assert 0.3 < line["diffused"]["leave_one_out"] <= 1


def test_features_that_do_not_fit_change_nothing(tmp_path):
    noise = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    active, with_noise = fit(tmp_path / "noise", features=noise)
    _, plain = fit(tmp_path / "plain", features=None, learn_from_graph=False)
    assert active.history.records[-1].diffused["points"] == 0
    assert with_noise.fits == plain.fits
    for ours, theirs in zip(with_noise.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_what_models_predicted_is_kept_for_selectors_without_logits_too(tmp_path):
    """Else a graph that the models have left behind would never fade out."""
    active, _ = fit(tmp_path, budget=120)
    asked = active.history.records[1]
    assert len(asked.predicted) == len(asked.indices) == 20


def test_an_interrupted_run_goes_on_with_the_same_batches(tmp_path):
    _, whole = fit(tmp_path / "whole", budget=140)
    with pytest.raises(RuntimeError, match="killed"):
        fit(tmp_path / "halves", budget=140, model=Classifier(interrupt_in_fit=2))
    _, rest = fit(tmp_path / "halves", budget=140)
    assert rest.fits == whole.fits[1:]
    assert whole.fits[0][0] != whole.fits[1][0]
    for ours, theirs in zip(rest.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2, "persistent_workers": True, "shuffle": True},
        {"num_workers": 1, "shuffle": False},
        {"sampler": WeightedRandomSampler(torch.ones(400), 400)},
        {"sampler": LabeledSampler()},
    ],
)
def test_workers_and_samplers_of_the_user(tmp_path, options):
    dataset = Digits()
    active, model = fit(tmp_path, dataset, DataLoader(dataset, batch_size=10, **options), epochs=2)
    labeled, diffused = set(labeled_in(active)), set(active.state.diffused.rows.tolist())
    [batches] = model.fits
    assert len(batches) == 20
    for indices, _ in batches:
        assert set(indices) <= labeled | diffused
        assert sum(index in diffused for index in indices) == 30
    extra = [[index for index in indices if index in diffused] for indices, _ in batches]
    assert len({tuple(sorted(drawn)) for drawn in extra}) == 20, "no two batches have the same"


@pytest.mark.parametrize(("learn", "workers"), [(False, 0), (True, 1)])
def test_a_labeled_sampler_shows_the_labels_of_the_oracle_and_not_those_of_the_dataset(tmp_path, learn, workers):
    truth, dataset = digits()[1], Digits(poisoned=True)
    loader = DataLoader(dataset, batch_size=10, sampler=LabeledSampler(), num_workers=workers)
    active, model = fit(
        tmp_path, dataset, loader, epochs=1, learn_from_graph=learn, oracle=lambda indices: truth[indices].tolist()
    )
    labeled = set(labeled_in(active))
    shown = {index: label for indices, labels in model.fits[0] for index, label in zip(indices, labels, strict=True)}
    assert labeled <= set(shown)
    assert all(shown[index] == truth[index] for index in labeled)
    assert (set(shown) > labeled) == learn


def test_two_ranks_draw_points_of_their_own(tmp_path):
    def rank():
        dataset, model = Digits(), Classifier()
        active = ActiveLearning(
            query_size=10, budget=100, initial=100, selector=RandomSelector(), features="inputs", learn_from_graph=True
        )
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, max_epochs=1, limit_val_batches=0)
        active.fit(trainer, model, DataLoader(dataset, batch_size=10, shuffle=True))
        note = {"batches": model.fits[0], "diffused": active.state.diffused.rows.tolist(), "known": labeled_in(active)}
        (tmp_path / f"rank-{trainer.global_rank}").write_text(json.dumps(note))

    assert run_ranks(tmp_path, rank) == [None, None]
    first, second = (json.loads((tmp_path / f"rank-{number}").read_text()) for number in (0, 1))
    assert first["diffused"] == second["diffused"]
    known = set(first["known"])
    drawn = [[index for indices, _ in note["batches"] for index in indices] for note in (first, second)]
    labeled = [[index for index in part if index in known] for part in drawn]
    assert sorted(labeled[0] + labeled[1]) == sorted(known), "each labeled point once"
    extra = [[index for index in part if index not in known] for part in drawn]
    assert len(extra[0]) == len(extra[1]) == 150
    assert set(extra[0] + extra[1]) <= set(first["diffused"])
    assert extra[0] != extra[1]


def test_a_second_view_of_the_pool_shows_the_same_labels(tmp_path):
    dataset = Digits()
    loaders = {
        "whole": DataLoader(dataset, batch_size=10, shuffle=True),
        "part": DataLoader(Subset(dataset, range(100, 300)), batch_size=10, shuffle=True),
    }

    class Both(Classifier):
        def training_step(self, batch, batch_idx):
            losses = [super(Both, self).training_step(part, batch_idx) for part in batch.values() if part is not None]
            return sum(losses)

    active, model = fit(tmp_path, dataset, loaders, model=Both(), epochs=1)
    label = dict(zip(active.state.diffused.rows.tolist(), active.state.diffused.labels.tolist(), strict=True))
    for indices, labels in model.fits[0]:
        extra = [(index, y) for index, y in zip(indices, labels, strict=True) if index in label]
        assert len(extra) * 4 == len(indices) * 3
        assert all(label[index] == y for index, y in extra)
    assert any(all(100 <= index < 300 for index in indices) for indices, _ in model.fits[0])


def test_the_guard_knows_the_points_with_diffused_labels_and_no_others():
    dataset = Digits(20)
    for diffused, fits in (([3, 4], True), ([3, 5], False)):
        view = WithDiffused(
            LabeledView(dataset, [0, 1]), RelabeledView(dataset, diffused, [0, 0], LabelField()), 1.0, seed=0
        )
        loader = DataLoader(view, batch_size=2)
        if fits:
            check_training_loaders(loader, [(dataset, {0, 1})], [], [(dataset, {3, 4})])
        else:
            with pytest.raises(MisconfigurationException, match="would train on unlabeled points"):
                check_training_loaders(loader, [(dataset, {0, 1})], [], [(dataset, {3, 4})])


def test_models_are_judged_by_the_points_they_predicted_and_not_by_others(tmp_path):
    truth = digits()[1]

    def people():
        oracle = People([str(digit) for digit in range(10)], render=lambda item: f"digit {item[2]}", neighbors=1)
        return fit(tmp_path, Digits(100), epochs=1, query_size=10, initial=30, oracle=oracle)[0]

    for skip in (0, 3, 0):
        active = people()
        asked = active.history.waiting.indices
        active.answer({index: None if place < skip else int(truth[index]) for place, index in enumerate(asked)})
    active = people()
    known = earlier_predictions(active.state, torch.device("cpu"))
    predicted = {
        index: label
        for record in active.history.records
        for index, label in zip(record.indices, record.predicted, strict=False)
    }
    labels = active.state.pool.labels
    expected = {index: label for index, label in predicted.items() if labels[index] >= 0}
    assert len(expected) == 10 + 7, "three of those that were predicted have no label"
    indices = [active.state.candidates[row] for row in known.rows.tolist()]
    assert dict(zip(indices, known.predicted.tolist(), strict=True)) == expected


def test_predicted_labels_of_the_pool_come_with_honest_probabilities(tmp_path):
    dataset = Digits(1000)
    active, _ = fit(tmp_path, dataset, epochs=1, learn_from_graph=False)
    found = active.predict_labels()
    truth = digits()[1][:1000]
    assert found.indices.tolist() == list(range(1000))
    assert found.known.sum() == 100
    assert torch.equal(found.labels[found.known], truth[found.known])
    right = (found.labels == truth)[~found.known].double()
    assert right.mean() > 0.8
    assert abs(float(right.mean() - found.expected_accuracy[~found.known].mean())) < 0.07
    order = found.confidence[~found.known].argsort()
    assert (found.expected_accuracy[~found.known][order].diff() >= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn_from_graph": "yes"}, r"ActiveLearning\(learn_from_graph='yes'\): True, False or LearnFromGraph"),
        ({"learn_from_graph": 1}, r"learn_from_graph=1\): True, False or LearnFromGraph"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ActiveLearning(query_size=1, budget=9, selector=RandomSelector(), **options)
    with pytest.raises(ValueError, match=r"LearnFromGraph\(fraction=2\): a number from 0 to 1"):
        LearnFromGraph(fraction=2)


def test_large_inputs_are_not_taken_for_features(tmp_path):
    class Photos(Digits):
        def __getitem__(self, index):
            return torch.zeros(3, 64, 64), self.targets[index], index

    with pytest.raises(MisconfigurationException, match=r"an item has 12288 numbers.*features=\.\.\. takes"):
        fit(tmp_path, Photos(), features=None)
