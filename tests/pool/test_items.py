"""Where the label is in an item, and where it is not."""

import numpy as np
import pytest
import torch

from lightning_diffal.pool.items import label_of, with_label, without_label

X = torch.ones(3)


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
        {"image": X, "label": 2},
        {"image": X, "target": np.uint8(2), "index": 7},
        {"image": X, "kind": 2},
    ],
)
def test_the_label_is_found_taken_away_and_replaced(item):
    assert label_of(item) == 2
    bare = without_label(item)
    assert 2 not in [part for part in (bare.values() if isinstance(bare, dict) else bare) if isinstance(part, int)]
    changed = with_label(item, 5)
    assert label_of(changed) == 5
    assert type(changed) is type(item)
    assert label_of(item) == 2, "the dataset's own item stays"


@pytest.mark.parametrize("item", [X, (X, "name"), (X, X), (X, 1, 2), {"image": X}, {"a": 1, "b": 2}])
def test_an_item_without_a_label_is_refused_and_can_be_given_one(item):
    with pytest.raises(TypeError, match="it has no label"):
        label_of(item)
    labeled = with_label(item, 5)
    assert (labeled["label"] if isinstance(labeled, dict) else labeled[-1]) == 5


@pytest.mark.parametrize("label", [1.5, float("nan")])
def test_a_label_that_is_no_class_is_refused(label):
    with pytest.raises(TypeError, match="one class for each point is needed"):
        label_of((X, label))
