"""Items and batches as other people's datasets give them, and `label=` where it cannot be seen."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, Subset

from lightning_diffal import PerClass
from tests.plugin.counting import (
    Counted,
    Recorder,
    Small,
    Snapshots,
    asks_first,
    check_only_labeled_were_drawn,
    labeled_by_fit,
)
from tests.plugin.toy_model import quiet

N, CLASSES = 60, 4
NAMES = ["ant", "bee", "cat", "dog"]


def points():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, 8, generator=generator)


@dataclass
class Thing:
    """An item with attributes, as torch_geometric's Data."""

    x: torch.Tensor
    y: torch.Tensor
    name: str = ""


def stacked(things):
    return Thing(torch.stack([thing.x for thing in things]), torch.stack([thing.y for thing in things]))


class Model(Small):
    """Trains on batches of any format; notes the labels it was trained on by the first number of each point."""

    def __init__(self, pair):
        super().__init__()
        self.pair, self.seen = pair, {}

    def training_step(self, batch, batch_idx):
        x, y = self.pair(batch)
        y = torch.as_tensor(y)
        y = y.argmax(dim=1) if y.ndim == 2 and y.shape[1] > 1 else y.flatten().long()
        self.seen.update(zip(x[:, 0].tolist(), y.tolist(), strict=True))
        return cross_entropy(self.head(self.backbone(x)), y)


class KeywordsModel(Model):
    def forward(self, **inputs):
        assert sorted(inputs) == ["mask", "x"]
        return super().forward(inputs["x"] * inputs["mask"])


class BatchModel(Model):
    def forward(self, batch):
        return super().forward(self.pair(batch)[0])


class DataModel(Model):
    def forward(self, data):
        return super().forward(data.x)


class AttributesModel(Model):
    def forward(self, x, name):
        return super().forward(x)


def number(index):
    return (index * 7) % CLASSES


def second(batch):
    return batch[0], batch[1]


def by_key(batch):
    return batch["x"], batch["y"]


def by_attribute(batch):
    return batch.x, batch.y


FORMATS = {
    "(x, y, index)": (lambda x, y, i: (x, y, i), second, Model, {}),
    "(index, x, y)": (
        lambda x, y, i: (i, x, y),
        lambda b: (b[1], b[2]),
        Model,
        {"label": 2, "forward": lambda module, batch: module(batch[1])},
    ),
    "(x, y, weight)": (lambda x, y, i: (x, y, 0.5), second, Model, {}),
    "one-hot": (lambda x, y, i: (x, one_hot(torch.tensor(y), CLASSES)), second, Model, {}),
    "one-hot floats": (lambda x, y, i: (x, one_hot(torch.tensor(y), CLASSES).float()), second, Model, {}),
    "one-hot in a dictionary": (
        lambda x, y, i: {"x": x, "y": np.eye(CLASSES, dtype="float32")[y]},
        by_key,
        Model,
        {},
    ),
    "np.array([y])": (lambda x, y, i: (x, np.array([y])), second, Model, {}),
    "np.array([y]) of three": (lambda x, y, i: (x, np.array([y]), f"{i}.png"), second, Model, {}),
    "keywords": (lambda x, y, i: {"x": x, "mask": torch.ones(8), "y": y}, by_key, KeywordsModel, {}),
    "batch": (lambda x, y, i: {"x": x, "mask": torch.ones(8), "y": y}, by_key, BatchModel, {}),
    "batch of a pair": (lambda x, y, i: (x, y), second, BatchModel, {}),
    "object": (lambda x, y, i: Thing(x, torch.tensor([y])), by_attribute, DataModel, {}),
    "object, forward(batch)": (lambda x, y, i: Thing(x, torch.tensor(y)), by_attribute, BatchModel, {}),
    "object, by attribute": (lambda x, y, i: Thing(x, torch.tensor([y])), by_attribute, AttributesModel, {}),
    "named key": (
        lambda x, y, i: {"x": x, "number": i, "species": y},
        lambda b: (b["x"], b["species"]),
        BatchModel,
        {"label": "species"},
    ),
    "named attribute": (
        lambda x, y, i: Thing(torch.cat([x, torch.tensor([float(y)])])[:8], torch.tensor([y]), "thing"),
        by_attribute,
        DataModel,
        {"label": "y"},
    ),
    "functions": (
        lambda x, y, i: (x, {"class": {"id": y}}),
        lambda b: (b[0], b[1]["class"]["id"]),
        Model,
        {
            "label": (
                lambda item: item[1]["class"]["id"],
                lambda item, label: (item[0], {"class": {"id": label}}),
            )
        },
    ),
    "strings": (
        lambda x, y, i: (x, NAMES[y]),
        lambda b: (b[0], [NAMES.index(name) for name in b[1]]),
        Model,
        {"classes": NAMES},
    ),
    "strings in a dictionary": (
        lambda x, y, i: {"x": x, "label": NAMES[y]},
        lambda b: (b["x"], [NAMES.index(name) for name in b["label"]]),
        BatchModel,
        {"classes": NAMES},
    ),
}


def run(tmp_path, format_name, labels_of_items, **options):
    shape, pair, model, arguments = FORMATS[format_name]
    x = points()
    dataset = Counted(shape(x[index], labels_of_items(index), index) for index in range(N))
    recorder, model, selector = Recorder(dataset), model(pair), Snapshots("embeddings", "logits")
    active = asks_first(**{"selector": selector, **arguments, **options})
    collate = {"collate_fn": stacked} if isinstance(dataset.items[0], Thing) else {}
    if isinstance(dataset.items[0], Thing) and isinstance(model, AttributesModel):
        collate = {"collate_fn": lambda things: Thing(stacked(things).x, stacked(things).y, "batch")}
    loader = DataLoader(dataset, batch_size=10, shuffle=True, **collate)
    history = active.fit(quiet(tmp_path, active, recorder, max_epochs=1), model, loader)
    assert history.labels[-1] == 20
    check_only_labeled_were_drawn(recorder, tmp_path)
    model.eval()
    with torch.no_grad():
        embeddings = model.backbone(x)
    assert selector.given[-1].num_classes == CLASSES
    return model, x, selector.given[-1], embeddings


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_labels_of_the_dataset_are_read_and_trained_on(tmp_path, format_name):
    model, x, snapshot, _ = run(tmp_path, format_name, number, initial=PerClass(3))
    labeled = labeled_by_fit(tmp_path)[-1]
    assert model.seen == {float(x[index, 0]): number(index) for index in labeled}
    known = snapshot.labels.tolist()
    assert all(label in (-1, number(index)) for index, label in enumerate(known))
    assert sum(label >= 0 for label in known) == 12


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_labels_of_an_oracle_are_trained_on_in_the_same_format(tmp_path, format_name):
    truth = {index: (index // 3) % CLASSES for index in range(N)}
    model, x, _, _ = run(
        tmp_path, format_name, lambda index: 0, oracle=lambda indices: [truth[index] for index in indices]
    )
    labeled = labeled_by_fit(tmp_path)[-1]
    assert model.seen == {float(x[index, 0]): truth[index] for index in labeled}


def test_the_embedding_of_a_batch_by_keywords_is_that_of_its_inputs(tmp_path):
    selector, x = Snapshots("embeddings", "logits"), points()
    dataset = Counted({"x": x[i], "mask": torch.ones(8), "y": number(i)} for i in range(N))
    model = KeywordsModel(by_key)
    active = asks_first(selector=selector)
    quiet(tmp_path, active, max_epochs=1).fit(model, DataLoader(dataset, batch_size=10))
    model.eval()
    with torch.no_grad():
        assert torch.allclose(selector.given[0].embeddings, model.backbone(x), atol=1e-5)


def fit_with(tmp_path, dataset, **options):
    active = asks_first(**options)
    active.fit(quiet(tmp_path, active), Small(), DataLoader(dataset, batch_size=10))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("species", r"label='species': an item is a tuple of \(Tensor, int\).* key|attribute"),
        (5, r"label=5: an item is a tuple of \(Tensor, int\)"),
        (lambda item: 0, r"label=.*: a key, a position, an attribute or a pair of functions \(get, set\)"),
        ((1, 2, 3), r"label=\(1, 2, 3\): .*a pair of functions \(get, set\)"),
    ],
)
def test_a_label_that_is_not_there_is_refused_by_name(tmp_path, label, message):
    dataset = Counted((x, 1) for x in points())
    with pytest.raises((ValueError, TypeError), match=message):
        fit_with(tmp_path, dataset, label=label)
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


def test_two_integers_that_may_both_be_the_label_are_refused(tmp_path):
    # (x, length, y): the second is no label.
    dataset = Counted((x, 1 + index % 3, number(index)) for index, x in enumerate(points()))
    active = asks_first()
    with pytest.raises(TypeError, match=r"integers at the positions \[1, 2\].*label=1 or label=2"):
        active.fit(quiet(tmp_path, active), Small(), DataLoader(dataset, batch_size=10))
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


@pytest.mark.parametrize("inner", [True, False])
def test_the_index_in_an_item_may_be_that_of_the_dataset_under_a_subset(tmp_path, inner):
    dataset = Counted((x, number(index), index) for index, x in enumerate(points()))
    active = asks_first()
    subset = Subset(dataset, range(59, 9, -1)) if inner else dataset
    active.fit(quiet(tmp_path, active, max_epochs=1), Model(second), DataLoader(subset, batch_size=10))


def test_strings_without_classes_say_what_to_write(tmp_path):
    dataset = Counted((x, NAMES[number(i)]) for i, x in enumerate(points()))
    active = asks_first()
    with pytest.raises(TypeError, match=r"label is the string '\w+'.*classes=\["):
        active.fit(quiet(tmp_path, active), Small(), DataLoader(dataset, batch_size=10))


def test_a_string_that_is_no_class_is_refused_by_name(tmp_path):
    dataset = Counted((x, NAMES[number(i)]) for i, x in enumerate(points()))
    active = asks_first(classes=["ant", "bee"], initial=PerClass(1))
    with pytest.raises(ValueError, match=r"label '(cat|dog)' is not among classes=\['ant', 'bee'\]"):
        active.fit(quiet(tmp_path, active), Small(), DataLoader(dataset, batch_size=10))


def test_an_item_without_a_label_says_what_to_write(tmp_path):
    active = asks_first()
    with pytest.raises(TypeError, match=r"Tensor of shape \(8,\).*no label.*label=.*oracle="):
        active.fit(quiet(tmp_path, active), Small(), DataLoader(Counted(points()), batch_size=10))


def test_inputs_that_cannot_be_told_apart_say_what_to_write(tmp_path):
    class Two(Small):
        def forward(self, first, other):
            return super().forward(first + other)

    active = asks_first()
    dataset = Counted({"x": x, "label": 1} for x in points())
    with pytest.raises(Exception, match=r"keys \['label', 'x'\].*forward takes \(first, other\).*forward=lambda"):
        active.fit(quiet(tmp_path, active), Two(), DataLoader(dataset, batch_size=10))
