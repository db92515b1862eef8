"""Where the label is in an item, and where it is not."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_diffal.pool.dataset.items import BY_FORMAT, LabelField

X = torch.ones(3)
Sample = namedtuple("Sample", ["label", "image"])


@pytest.mark.parametrize(
    "item",
    [
        (X, 2),
        [X, 2],
        (X, torch.tensor(2)),
        (X, torch.tensor([2])),
        (X, np.int64(2)),
        (X, 2.0),
        (X, torch.tensor(2.0)),
        (X, X, 2),
        (X, "name", torch.tensor(2)),
        (X, 2, 7),
        (X, np.array([2]), 7),
        (X, torch.tensor([0, 0, 1, 0, 0, 0])),
        (X, np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])),
        {"image": X, "label": 2},
        {"image": X, "target": np.uint8(2), "index": 7},
        {"image": X, "kind": 2},
        {"image": X, "label": torch.tensor([0, 0, 1, 0, 0, 0])},
        Sample(2, X),
        SimpleNamespace(x=X, y=torch.tensor([2])),
    ],
)
def test_the_label_is_found_removed_and_replaced(item):
    assert BY_FORMAT.read(item) == 2
    bare = BY_FORMAT.remove(item)
    assert 2 not in [part for part in (bare.values() if isinstance(bare, dict) else bare) if isinstance(part, int)]
    changed = BY_FORMAT.replace(item, 5)
    assert BY_FORMAT.read(changed) == 5
    assert type(changed) is type(item)
    assert BY_FORMAT.read(item) == 2, "the dataset's own item stays"
    hidden = BY_FORMAT.hide(item)
    assert type(hidden) is type(item)
    assert BY_FORMAT.read(item) == 2


@pytest.mark.parametrize(
    ("item", "hidden"),
    [
        ((X, 2), (X, -1)),
        ((X, torch.tensor([2])), (X, torch.tensor([-1]))),
        ((X, torch.tensor([0.0, 1.0])), (X, torch.tensor([-1.0, -1.0]))),
        ({"image": X, "label": np.array([2])}, {"image": X, "label": np.array([-1])}),
        (X, X),
    ],
)
def test_a_hidden_label_is_minus_one_in_the_same_format(item, hidden):
    found = BY_FORMAT.hide(item)
    parts = zip(*[list(x.values()) if isinstance(x, dict) else list(x) for x in (found, hidden)], strict=True)
    assert all(np.array_equal(one, other) and type(one) is type(other) for one, other in parts)


@pytest.mark.parametrize("item", [X, (X, "name"), (X, X), (1, X, 2), {"image": X}, {"a": 1, "b": 2}])
def test_an_item_without_a_label_gets_one(item):
    with pytest.raises(TypeError, match="no label that can be found"):
        BY_FORMAT.read(item)
    labeled = BY_FORMAT.replace(item, 5)
    assert (labeled["label"] if isinstance(labeled, dict) else labeled[-1]) == 5


@pytest.mark.parametrize("label", [1.5, float("nan")])
def test_a_label_that_is_not_a_class_is_refused(label):
    with pytest.raises(TypeError, match="one class for each point is needed"):
        BY_FORMAT.read((X, label))


@pytest.mark.parametrize(("where", "item"), [(-1, (X, X, 2)), ("label", Sample(2, X)), (0, (2, X))])
def test_a_place_from_the_end_or_by_name(where, item):
    field = LabelField(where)
    assert field.read(item) == 2
    assert len(field.remove(item)) == len(item) - 1
    assert field.read(field.replace(item, 5)) == 5


def test_names_are_classes_in_their_order():
    named = LabelField(classes=["ant", "bee", "cat"])
    assert named.read((X, "cat")) == 2
    assert named.replace((X, "cat"), 1)[1] == "bee"
    assert named.read((X, "cat", "file.png")) == 2
