"""Every selector behind the callback, on a real Trainer."""

import pytest
from torch import nn

from lightning_diffal import ActiveLearning
from lightning_diffal.selectors import (
    BADGESelector,
    BALDSelector,
    CoresetSelector,
    EntropySelector,
    LocalMaxSelector,
    MarginSelector,
    RandomSelector,
)
from tests.plugin.toy_model import Clouds, Data, Net, quiet
from tests.selectors.test_contract import SELECTORS


class Forgetful(Net):
    def __init__(self):
        super().__init__()
        self.backbone.append(nn.Dropout(0.5))


# The last of each kind: with dropout where there is a choice, and without.
ONE_OF_EACH = {type(selector): selector for selector in SELECTORS}.values()


@pytest.mark.parametrize("selector", ONE_OF_EACH, ids=repr)
def test_the_second_fit_trains_on_what_it_asked_for(selector, tmp_path):
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=selector)
    assert active.fit(quiet(tmp_path, active), Forgetful(), datamodule=Data()).labels == [9, 17]


class Counting(Forgetful):
    """Counts the points that pass it after training, with dropout and without."""

    def __init__(self):
        super().__init__()
        self.asked = {"training": 0, "eval": 0}

    def forward(self, x):
        if self.trainer.predicting:
            self.asked["training" if self.backbone[-1].training else "eval"] += len(x)
        return super().forward(x)

    def on_train_start(self):
        super().on_train_start()
        self.asked = {"training": 0, "eval": 0}  # without the dry run


POOL, BATCH = 120, 40


@pytest.mark.parametrize(
    ("selector", "training", "evaluating"),
    [
        (RandomSelector(), 0, 0),
        (MarginSelector(), 0, POOL),
        (CoresetSelector(), 0, POOL),
        (BADGESelector(), 0, POOL),
        # One pass up to the dropout layer does for all twenty. The first batch is passed twice without dropout, to
        # learn whether the model allows that.
        (EntropySelector(passes=20), POOL, 2 * BATCH),
        (BALDSelector(passes=20), POOL, 2 * BATCH),
        (LocalMaxSelector(of=BALDSelector(passes=20), neighbors=5), POOL, POOL + BATCH),
    ],
    ids=repr,
)
def test_nothing_is_computed_that_a_selector_does_not_need(selector, training, evaluating, tmp_path):
    model = Counting()
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=selector, pool_batch_size=BATCH)
    quiet(tmp_path, active).fit(model, datamodule=Data())
    assert model.asked == {"training": training, "eval": evaluating}


class NotedTargets(list):
    """Labels of which each that is read is noted."""

    def __init__(self, labels):
        super().__init__(labels)
        self.read = set()

    def __getitem__(self, index):
        self.read.add(index)
        return super().__getitem__(index)

    def __iter__(self):
        raise AssertionError("all labels are read")


def test_chance_reads_the_labels_it_asks_for_and_no_others(tmp_path):
    class Noted(Clouds):
        def __init__(self):
            super().__init__()
            self.classes_of_points, self.targets = self.targets, NotedTargets(self.targets.tolist())

        def __getitem__(self, index):
            return self.x[index], self.classes_of_points[index]

    dataset = Noted()
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=RandomSelector())
    trainer = quiet(tmp_path, active, limit_val_batches=0)
    history = active.fit(trainer, Forgetful(), datamodule=Data(dataset))
    assert dataset.targets.read == {index for record in history.records for index in record.indices}
    assert len(dataset.targets.read) == 17
