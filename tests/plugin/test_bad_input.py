"""Each way to be wrong, and the message it gets, before any work is done."""

import json

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal import ActiveLearning, DiffusionActiveLearning, PerClass
from lightning_diffal.selectors import DirichletSelector, LocalMaxSelector, MarginSelector, PoissonSelector
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet

ARGUMENTS = [
    ({"query_size": 0}, r"DiffusionActiveLearning\(query_size=0\): a whole number of at least 1 is needed"),
    ({"query_size": 2.5}, r"DiffusionActiveLearning\(query_size=2.5\)"),
    ({"query_size": True}, r"DiffusionActiveLearning\(query_size=True\)"),
    ({"budget": 0}, r"DiffusionActiveLearning\(budget=0\)"),
    ({"budget": None}, r"DiffusionActiveLearning\(budget=None\)"),
    ({"budget": 8}, r"DiffusionActiveLearning\(initial=...\): 9 first labels are more than the budget of 8"),
    ({"initial": -1}, r"DiffusionActiveLearning\(initial=-1\): a count of at least 0, PerClass\(count\) or a list"),
    ({"initial": "all"}, r"DiffusionActiveLearning\(initial='all'\)"),
    (
        {"initial": [1, 1, 2]},
        r"DiffusionActiveLearning\(initial=...\): different indices from 0 are needed, \[1, 1, 2\]",
    ),
    ({"initial": [-3]}, r"different indices from 0 are needed, \[-3\]"),
    ({"initial": []}, r"different indices from 0 are needed, \[\]"),
    ({"mini_batch": 0}, r"DiffusionSelector\(mini_batch=0\)"),
    ({"neighbors": 0}, r"DiffusionSelector\(neighbors=0\)"),
    ({"steps": 0}, r"DiffusionSelector\(steps=0\)"),
    ({"shrink_below": 1.5}, r"DiffusionSelector\(shrink_below=1.5\): a fraction of the pool in \[0, 1\] is needed"),
    ({"backend": "annoy"}, r"DiffusionSelector\(backend='annoy'\): \"auto\", \"exact\" or one of \"torch\""),
    ({"layer": 3}, r"DiffusionActiveLearning\(layer=3\): the dotted name of a submodule, or None, is needed"),
    ({"oracle": [0, 1]}, r"DiffusionActiveLearning\(oracle=\[0, 1\]\): a function is needed"),
    (
        {"forward": "forward"},
        r"DiffusionActiveLearning\(forward='forward'\): a function of \(module, batch\)",
    ),
    ({"stop_when": 0.9}, r"DiffusionActiveLearning\(stop_when=0.9\): a function is needed"),
    ({"seed": -1}, r"DiffusionActiveLearning\(seed=-1\): a whole number in \[0, 2\*\*32\) is needed"),
    ({"seed": 0.5}, r"DiffusionActiveLearning\(seed=0.5\)"),
    ({"num_classes": 0}, r"DiffusionActiveLearning\(num_classes=0\)"),
    ({"pool_batch_size": -4}, r"DiffusionActiveLearning\(pool_batch_size=-4\)"),
]


@pytest.mark.parametrize(("wrong", "message"), ARGUMENTS, ids=lambda value: value if isinstance(value, str) else None)
def test_an_argument_that_cannot_work_is_refused_when_it_is_given(wrong, message):
    with pytest.raises(ValueError, match=message):
        DiffusionActiveLearning(**{"query_size": 8, "budget": 33, "initial": 9} | wrong)


def test_a_selector_must_be_callable():
    with pytest.raises(ValueError, match=r"ActiveLearning\(selector='random'\): a selector or a function"):
        ActiveLearning(query_size=8, budget=33, selector="random")


def test_a_count_per_class_is_a_count():
    with pytest.raises(ValueError, match=r"PerClass\(count=0\)"):
        PerClass(0)


class Targets(Clouds):
    def __init__(self, targets):
        super().__init__()
        self.targets = targets


class ByItem(Clouds):
    """Its labels come only with the items."""

    def __init__(self, item):
        super().__init__()
        del self.targets
        self.item = item

    def __getitem__(self, index):
        return self.item(self.x[index], index)


def nobody(indices):
    return [0] * (len(indices) - 1)


IN_A_RUN = [
    ({"initial": [3, 120]}, None, ValueError, "initial=...: index 120 is not among the 120 points of the pool"),
    ({"initial": PerClass(41), "budget": 999}, None, ValueError, r"PerClass\(count=41\): class 0 has only 40 points"),
    ({"initial": PerClass(2), "oracle": nobody}, None, ValueError, r"PerClass\(count=2\): .* known in simulation only"),
    ({"oracle": nobody}, None, ValueError, "asked about the 9 points .* it answered 8 labels"),
    ({"oracle": lambda indices: [-1] * len(indices)}, None, ValueError, "One class for each, counted from 0"),
    (
        {"oracle": lambda indices: ["cat"] * len(indices)},
        None,
        TypeError,
        "A label is the string 'cat': one class for each",
    ),
    ({"oracle": lambda indices: [0.5] * len(indices)}, None, TypeError, "A label is float 0.5.*one class for each"),
    ({}, Targets(["cat"] * 120), TypeError, r"A label is the string 'cat'.*classes=\['cat'"),
    ({}, Targets(torch.full((120,), -1)), ValueError, "label -1 is not a class: classes are counted from 0"),
    ({}, ByItem(lambda x, i: x), TypeError, r"An item of the dataset is Tensor of shape \(2,\).*: it has no label"),
    ({}, ByItem(lambda x, i: (x, i, i)), MisconfigurationException, r"label \d+ of the point .* has 3 outputs"),
    ({}, ByItem(lambda x, i: (i, x, i)), TypeError, r"An item of the dataset is a tuple of .* no label.*label="),
    ({}, ByItem(lambda x, i: (x, torch.ones(3))), TypeError, r"a tuple of \(Tensor, Tensor\): it has no label"),
    ({}, Clouds(0), MisconfigurationException, "training dataset Clouds is empty"),
    (
        {"neighbors": 120},
        None,
        ValueError,
        r"DiffusionSelector\(neighbors=120\): a pool of 120 points has at most 119 neighbors each",
    ),
]


@pytest.mark.parametrize(("options", "dataset", "error", "message"), IN_A_RUN)
def test_what_shows_only_in_a_run_is_refused_before_anything_is_trained(tmp_path, options, dataset, error, message):
    active, model = learner(**options), Net()
    with pytest.raises(error, match=message):
        active.fit(quiet(tmp_path, active), model, datamodule=Data(dataset, shuffle=False))
    assert not model.diary
    ledger = tmp_path / "active_learning" / "rounds.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    assert not any(line.get("labels") for line in lines), "what was asked is on the disk, and no label"


def test_embeddings_that_are_not_finite_are_refused_by_name(tmp_path):
    class Broken(Net):
        def on_train_end(self):
            super().on_train_end()
            torch.nn.init.constant_(self.backbone[0].weight, float("nan"))

    active = learner()
    with pytest.raises(ValueError, match=r"Snapshot\(embeddings=...\): 120 of 120 rows .* NaN"):
        active.fit(quiet(tmp_path, active), Broken(), datamodule=Data())
    assert len((tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()) == 1, "the first labels stay"


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        (PoissonSelector(neighbors=120), "PoissonSelector"),
        (DirichletSelector(neighbors=120), "DirichletSelector"),
        (LocalMaxSelector(of=MarginSelector(), neighbors=120), "LocalMaxSelector"),
        (LocalMaxSelector(of=PoissonSelector(neighbors=120)), "PoissonSelector"),
    ],
    ids=repr,
)
def test_a_graph_that_the_pool_is_too_small_for_is_refused_before_anything_is_trained(selector, name, tmp_path):
    model, active = Net(), ActiveLearning(query_size=8, budget=33, initial=9, selector=selector)
    with pytest.raises(ValueError, match=rf"{name}\(neighbors=120\): a pool of 120 points has at most 119 neighbors"):
        active.fit(quiet(tmp_path, active), model, datamodule=Data())
    assert not model.diary
