"""A run knows its dataset again, whatever is random in the items, and notices other points or another order."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from lightning_diffal.pool.dataset.fingerprint import match_fingerprint, take_fingerprint
from lightning_diffal.pool.dataset.items import BY_FORMAT
from tests.plugin.counting import Counted, Small, asks_first
from tests.plugin.toy_model import quiet

N = 40
pytestmark = pytest.mark.filterwarnings("ignore:.*gives other items each time")


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(N, 8)).astype("float32")


class OwnGenerator(Dataset):
    """Augments with a generator of its own, which no global seed reaches."""

    def __init__(self, data, chance=1.0, seed=None):
        self.data, self.chance, self.rng = data, chance, np.random.default_rng(seed)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x = np.array(self.data[index])
        if self.rng.random() < self.chance:
            x = x + self.rng.normal(size=8).astype("float32")
        return torch.from_numpy(x), index % 4


class Hidden(OwnGenerator):
    """The same, its raw data out of sight."""

    def __init__(self, data, chance=1.0, seed=None):
        super().__init__(None, chance, seed)
        self.load, self.size = data.__getitem__, len(data)
        self.data = self

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        x = np.array(self.load(index))
        if self.rng.random() < self.chance:
            x = x + self.rng.normal(size=8).astype("float32")
        return {"x": torch.from_numpy(x), "label": index % 4, "file": f"{x.shape}-{self.load(index)[0]:.6f}.png"}


class Named(Small):
    def forward(self, x):
        return super().forward(x["x"] if isinstance(x, dict) else x)

    def pair(self, batch):
        return (batch["x"], batch["label"]) if isinstance(batch, dict) else batch


def run(tmp_path, dataset, budget=36, max_epochs=1, **options):
    active = asks_first(budget=budget, **options)
    trainer = quiet(tmp_path, active, max_epochs=max_epochs)
    return active.fit(trainer, Named(), DataLoader(dataset, batch_size=8, shuffle=True))


def fingerprints(tmp_path):
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    return {json.loads(line)["dataset"] for line in lines}


@pytest.mark.parametrize("kind", [OwnGenerator, Hidden])
@pytest.mark.parametrize("chance", [1.0, 0.3, 0.02])
def test_augmentation_with_a_generator_of_its_own_never_ends_a_run(tmp_path, kind, chance):
    assert run(tmp_path, kind(rows(), chance)).labels == [12, 20, 28, 36]
    # As after a crash: another process, another state of the generator.
    assert run(tmp_path, kind(rows(), chance), budget=40).labels[-1] == 40
    assert len(fingerprints(tmp_path)) == 1, "one run, one dataset"


class Scripted(Hidden):
    """Changes its items in those readings alone that it is told, counted over all its items."""

    def __init__(self, data, readings):
        super().__init__(data)
        self.readings, self.count = readings, 0
        self.rng = self

    def random(self):
        self.count += 1
        return 0.0 if self.count in self.readings else 1.1

    def normal(self, size):
        return np.full(size, self.count, "float32")


@pytest.mark.parametrize("first", [{3}, {3, 19}, {3, 19, 90}])
@pytest.mark.parametrize("later", [set(), {2, 40}, {20}, {11, 12, 60, 70}])
def test_items_that_change_rarely_are_known_again_whichever_changes_were_seen(first, later):
    recorded = str(take_fingerprint(Scripted(rows(), first), N))

    def again(data):
        dataset = Scripted(data, later)
        return match_fingerprint(take_fingerprint(dataset, N), recorded, dataset, BY_FORMAT)

    assert again(rows()) == recorded
    assert again(rows(1)) != recorded, "other files"


@pytest.mark.parametrize("kind", [OwnGenerator, Hidden])
def test_rows_in_another_order_are_noticed_behind_augmentation(tmp_path, kind):
    run(tmp_path, kind(rows()), budget=20)
    with pytest.raises(ValueError, match="another dataset"):
        run(tmp_path, kind(rows()[::-1]), budget=28)


def test_another_split_of_augmented_data_is_noticed(tmp_path):
    data = OwnGenerator(np.concatenate([rows(), rows(1)]))
    run(tmp_path, Subset(data, range(40)), budget=20)
    with pytest.raises(ValueError, match="another dataset"):
        run(tmp_path, Subset(data, range(40, 80)), budget=28)


def test_paths_tell_datasets_apart_where_items_are_random(tmp_path):
    class Files(OwnGenerator):
        def __init__(self, names):
            super().__init__(rows())
            self.samples = [(name, place % 4) for place, name in enumerate(names)]
            del self.data

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            return torch.from_numpy(self.rng.normal(size=8).astype("float32")), self.samples[index][1]

    names = [f"images/{number}.png" for number in range(N)]
    run(tmp_path, Files(names), budget=20)
    assert run(tmp_path, Files(names), budget=28).labels[-1] == 28
    with pytest.raises(ValueError, match="another dataset"):
        run(tmp_path, Files(names[::-1]), budget=36)


def test_a_dataset_that_fills_a_cache_stays_the_same(tmp_path):
    class Caching(OwnGenerator):
        def __init__(self, data):
            super().__init__(data)
            self.cache, self.counts = [None] * N, np.zeros(N)

        def __getitem__(self, index):
            self.counts[index] += 1
            if self.cache[index] is None:
                self.cache[index] = super().__getitem__(index)[0]
            return self.cache[index] + float(self.rng.normal()), index % 4

    dataset = Caching(rows())
    assert run(tmp_path, dataset).labels == [12, 20, 28, 36]
    assert run(tmp_path, Caching(rows()), budget=40).labels[-1] == 40


def test_stable_datasets_keep_the_fingerprint_they_had(tmp_path):
    items = [(torch.from_numpy(row), place % 4) for place, row in enumerate(rows())]
    run(tmp_path, Counted(items), budget=20)
    assert fingerprints(tmp_path) == {"40-766f00b2e8b4d51e"}


def test_labels_are_no_part_of_the_fingerprint(tmp_path):
    run(tmp_path, Counted((torch.from_numpy(row), place % 4) for place, row in enumerate(rows())), budget=20)
    kept = fingerprints(tmp_path)
    other = tmp_path / "other"
    run(other, Counted((torch.from_numpy(row), 3 - place % 4) for place, row in enumerate(rows())), budget=20)
    assert fingerprints(other) == kept
