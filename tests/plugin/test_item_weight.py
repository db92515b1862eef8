"""A weight for each item of a training batch: 1 where the label was given, the expected accuracy where it diffused."""

import json
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

from lightning_diffal import ActiveLearning, LabeledSampler, LearnFromGraph, People
from lightning_diffal.selectors import RandomSelector
from tests.plugin.rank_processes import run_ranks
from tests.plugin.test_learn_from_graph import Classifier, Digits, digits, fit, labeled_in
from tests.plugin.toy_model import quiet

pytestmark = pytest.mark.filterwarnings("ignore")
NOISE = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
Item = namedtuple("Item", "x y index")


@dataclass
class Thing:
    """An item with attributes."""

    x: torch.Tensor
    y: torch.Tensor
    index: int


def stacked(things):
    parts = {name: [getattr(thing, name) for thing in things] for name in vars(things[0])}
    batch = Thing(torch.stack(parts["x"]), torch.stack(parts["y"]), torch.tensor(parts["index"]))
    if "importance" in parts:  # items of the pool are collated too, and have none
        batch.importance = torch.stack(parts["importance"])
    return batch


class As(Digits):
    def __init__(self, make, count=400):
        super().__init__(count)
        self.make = make

    def __getitem__(self, index):
        return self.make(*super().__getitem__(index))


class Weighted(Classifier):
    """Notes index and weight of every item that it trains on."""

    def __init__(self, read=tuple):
        super().__init__()
        self.read, self.val_sizes = read, []

    def training_step(self, batch, batch_idx):
        x, y, index, weight = self.read(batch)
        assert weight.dtype == torch.float32
        assert weight.shape == y.shape
        self.fits[-1].append(list(zip(index.tolist(), weight.tolist(), strict=True)))
        return (weight * cross_entropy(self(x), y, reduction="none")).mean()

    def validation_step(self, batch, batch_idx):
        self.val_sizes.append(len(batch))


def by_keys(*names):
    return lambda batch: [batch[name] for name in names]


FORMATS = {
    "tuple": (lambda x, y, i: (x, y, i), True, tuple),
    "list": (lambda x, y, i: [x, y, i], True, tuple),
    "dictionary": (lambda x, y, i: {"x": x, "y": y, "i": i}, True, by_keys("x", "y", "i", "weight")),
    "named": (lambda x, y, i: {"x": x, "y": y, "weight": i}, "trust", by_keys("x", "y", "weight", "trust")),
    "object": (Thing, "importance", lambda batch: (batch.x, batch.y, batch.index, batch.importance)),
}


def check_weights(batches, labeled, diffused):
    expected = dict.fromkeys(labeled, 1.0)
    if diffused is not None:
        expected |= dict(zip(diffused.rows.tolist(), diffused.expected.tolist(), strict=True))
    for batch in batches:
        for index, weight in batch:
            assert weight == pytest.approx(expected[index], abs=1e-6), index
    return [weight for batch in batches for _, weight in batch]


@pytest.mark.parametrize("kind", FORMATS)
def test_items_of_every_format_carry_it_in_every_round(tmp_path, kind):
    make, weight, read = FORMATS[kind]
    dataset, model = As(make), Weighted(read)
    loader = DataLoader(dataset, batch_size=10, shuffle=True, collate_fn=stacked if kind == "object" else None)
    active, _ = fit(tmp_path, dataset, loader, model, learn_from_graph=LearnFromGraph(weight=weight), epochs=1)
    [batches] = model.fits
    weights = check_weights(batches, labeled_in(active), active.state.diffused)
    assert 0.5 < min(weights) < 0.999, "the graph is not sure of all"
    assert weights.count(1.0) >= 100
    noisy = Weighted(read)
    active, _ = fit(
        tmp_path / "b", dataset, loader, noisy, learn_from_graph=LearnFromGraph(weight=weight), epochs=1, features=NOISE
    )
    assert check_weights(noisy.fits[0], labeled_in(active), None) == [1.0] * 100, "nothing diffuses over noise"


def test_answers_of_people_workers_and_other_loaders(tmp_path):
    truth = digits()[1]
    dataset = As(lambda x, y, i: (x, y, i))
    loaders = {
        "whole": DataLoader(dataset, batch_size=10, sampler=LabeledSampler(), num_workers=1),
        "part": DataLoader(Subset(dataset, range(300)), batch_size=10),
        "other": DataLoader(Digits(50), batch_size=10),
    }

    class Three(Weighted):
        def training_step(self, batch, batch_idx):
            if batch["other"] is not None:
                assert len(batch["other"]) == 3, "other data is left as it is"
            losses = [super(Three, self).training_step(batch[name], 0) for name in ("whole", "part") if batch[name]]
            return sum(losses)

    active, model = fit(
        tmp_path, dataset, loaders, Three(), learn_from_graph=LearnFromGraph(weight=True), epochs=1,
        oracle=lambda indices: truth[indices].tolist(), other_data=["other"],
    )  # fmt: skip
    weights = check_weights(model.fits[0], labeled_in(active), active.state.diffused)
    assert min(weights) < 1


def weighted(**options):
    defaults = {"query_size": 40, "budget": 140, "initial": 100, "selector": RandomSelector(), "features": "inputs"}
    return ActiveLearning(**defaults | options, learn_from_graph=LearnFromGraph(weight=True))


def test_validation_batches_are_as_they_were_and_items_without_labels_get_both(tmp_path):
    class Bare(Digits):
        def __getitem__(self, index):
            return self.x[index]

    class Pairs(Weighted):
        def training_step(self, batch, batch_idx):
            x, y, weight = batch
            return super().training_step((x, y, torch.zeros_like(y), weight), batch_idx)

    model, truth = Pairs(), digits()[1]
    loaders = DataLoader(Bare(), batch_size=10), DataLoader(TensorDataset(*(part[:50] for part in digits())), 10)
    for _ in range(2):
        active = weighted(oracle=People([str(digit) for digit in range(10)], render=lambda item: "digit", neighbors=1))
        active.fit(quiet(tmp_path, active, max_epochs=1), model, *loaders)
        active.answer({index: int(truth[index]) for index in active.history.waiting.indices})
    assert set(model.val_sizes) == {2}
    assert len(model.fits[0]) == 10
    assert min(weight for batch in model.fits[0] for _, weight in batch) < 1


def test_a_fast_dev_run_has_it_too(tmp_path):
    model, active = Weighted(), weighted()
    active.fit(quiet(tmp_path, active, fast_dev_run=True), model, DataLoader(Digits(), batch_size=10))
    assert [weight for _, weight in model.fits[0][0]] == [1.0] * 10


def test_two_ranks(tmp_path):
    def rank():
        model, active = Weighted(), weighted(budget=100)
        trainer = quiet(tmp_path, active, strategy="ddp", devices=2, max_epochs=1, limit_val_batches=0)
        active.fit(trainer, model, DataLoader(Digits(), batch_size=10, shuffle=True))
        weights = check_weights(model.fits[0], labeled_in(active), active.state.diffused)
        (tmp_path / f"rank-{trainer.global_rank}").write_text(json.dumps(weights))

    assert run_ranks(tmp_path, rank) == [None, None]
    for number in (0, 1):
        weights = json.loads((tmp_path / f"rank-{number}").read_text())
        assert len(weights) == 200, "three diffused points beside each of 50 labeled ones"
        assert weights.count(1.0) >= 50
        assert min(weights) < 1


@pytest.mark.parametrize(
    ("make", "weight", "message"),
    [
        (Item, True, r"weight=True\): an item is .*Item.*, whose fields are fixed.*a tuple, a list or a dictionary"),
        (lambda x, y, i: (x, y, i), "trust", r"weight='trust'\): an item is .*, which has no names.*weight=True"),
        (lambda x, y, i: {"x": x, "y": y, "weight": i}, True, r"a 'weight' already.*LearnFromGraph\(weight=\"\.\.\."),
        (Thing, "index", r"has a 'index' already"),
    ],
)  # fmt: skip
def test_what_cannot_carry_it_is_refused_before_a_label_is_spent(tmp_path, make, weight, message):
    dataset = As(make)
    with pytest.raises(MisconfigurationException, match=message):
        fit(tmp_path, dataset, learn_from_graph=LearnFromGraph(weight=weight), features=None)
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


@pytest.mark.parametrize("weight", [1, "", None, 0.5])
def test_what_is_no_name_is_refused(weight):
    with pytest.raises(ValueError, match=r"LearnFromGraph\(weight=.*\): True, False or the name of a key"):
        LearnFromGraph(weight=weight)
