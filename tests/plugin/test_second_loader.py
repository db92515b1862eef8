"""A second training loader never reaches a point that was not asked about."""

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from lightning_diffal import ActiveLearning
from lightning_diffal.selectors.random import RandomSelector
from tests.plugin.toy_model import Net, quiet

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


class Loaders(LightningDataModule):
    def __init__(self, **datasets):
        super().__init__()
        self.datasets = datasets

    def train_dataloader(self):
        return {name: DataLoader(dataset, batch_size=8) for name, dataset in self.datasets.items()}


class Points(Dataset):
    """Numbered points; each says which it is, so that training can note it."""

    def __init__(self, n=60, first=0):
        self.x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
        self.targets, self.numbers = torch.arange(n) % 3, torch.arange(first, first + n).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.targets[index], self.numbers[index]


class Both(Net):
    """Trains on both loaders and notes the points it saw."""

    def __init__(self):
        super().__init__()
        self.seen = {"a": set(), "b": set()}

    def on_train_start(self):
        pass

    on_train_epoch_end = on_train_end = on_train_start

    def training_step(self, batch, batch_idx):
        for name, part in batch.items():
            if part is not None:
                self.seen[name] |= set(part[-1].int().tolist())
        x, y = next(part for part in batch.values() if part is not None)[:2]
        return torch.nn.functional.cross_entropy(self(x), y)


def seen_by(tmp_path, a, b, **options):
    """What training saw of each loader, and the numbers of the points that were asked about."""
    active, model = ActiveLearning(6, 12, selector=RandomSelector(), initial=6, **options), Both()
    active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), model, datamodule=Loaders(a=a, b=b))
    asked = [index for record in active.history.records for index in record.indices]
    return model.seen, {int(a[index][-1]) for index in asked}


def tensors(points):
    return TensorDataset(points.x, points.targets, points.numbers)


BASE = Points()
HALF = list(range(30))
SAME_ITEMS = {
    "the same dataset": lambda: (BASE, BASE),
    "two equal subsets": lambda: (Subset(BASE, HALF), Subset(BASE, HALF)),
    "a subset in reversed order": lambda: (Subset(BASE, HALF), Subset(BASE, HALF[::-1])),
    "subsets of equal length that overlap": lambda: (Subset(BASE, HALF), Subset(BASE, range(15, 45))),
    "a smaller subset": lambda: (BASE, Subset(BASE, range(20))),
    "a larger one": lambda: (Subset(BASE, HALF), BASE),
    "nested subsets": lambda: (Subset(BASE, range(10, 40)), Subset(Subset(BASE, range(50)), range(5, 35))),
    "the same twice": lambda: (BASE, ConcatDataset([BASE, BASE])),
    "one of two parts": lambda: (ConcatDataset([Subset(BASE, HALF), Subset(BASE, range(30, 60))]), Subset(BASE, HALF)),
    "tensors on the same storage": lambda: (tensors(BASE), tensors(BASE)),
    "a slice of the same storage": lambda: (
        tensors(BASE),
        TensorDataset(BASE.x[10:30], BASE.targets[10:30], BASE.numbers[10:30]),
    ),
}


@pytest.mark.parametrize("make", SAME_ITEMS.values(), ids=SAME_ITEMS)
def test_a_loader_over_the_same_items_draws_labeled_ones_only_or_is_refused(tmp_path, make):
    a, b = make()
    pool = {int(a[index][-1]) for index in range(len(a))}
    message = ""
    try:
        seen, asked = seen_by(tmp_path, a, b)
    except MisconfigurationException as refused:
        message = str(refused)
    if message:
        assert "'b'" in message
        assert not (tmp_path / "active_learning" / "rounds.jsonl").exists(), "and before anything was asked"
        return
    assert seen["a"] <= asked
    assert seen["b"] & pool <= asked


@pytest.mark.parametrize(
    "name", ["the same dataset", "two equal subsets", "a subset in reversed order", "a smaller subset"]
)
def test_what_shows_the_pool_in_another_order_is_narrowed_not_refused(tmp_path, name):
    a, b = SAME_ITEMS[name]()
    seen, asked = seen_by(tmp_path, a, b)
    assert seen["a"] == asked
    assert seen["b"] == asked & {int(b[index][-1]) for index in range(len(b))}


def test_disjoint_parts_of_one_dataset_are_other_data_if_the_user_says_so(tmp_path):
    a, b = Subset(BASE, HALF), Subset(BASE, range(30, 60))
    with pytest.raises(MisconfigurationException, match=r"training loader 'b'.*other_data="):
        seen_by(tmp_path, a, b)
    seen, asked = seen_by(tmp_path, a, b, other_data=["b"])
    assert seen["a"] == asked
    assert seen["b"] == set(range(30, 60)), "points that nobody could ask about are drawn as the user says"


class Reader(Dataset):
    """Reads the points in a way of its own: from outside nobody can tell which."""

    def __init__(self, points):
        self.points = points

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index]


UNKNOWN = {
    "another class over the same points": lambda: (BASE, Reader(BASE)),
    "another class of another length": lambda: (BASE, Reader(Subset(BASE, range(20)))),
    "copied tensors": lambda: (tensors(BASE), TensorDataset(BASE.x.clone(), BASE.targets, BASE.numbers.clone())),
    "an equal dataset": lambda: (BASE, Points()),
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_told_from_the_pool_is_refused_before_anything_is_asked(tmp_path, make):
    a, b = make()
    with pytest.raises(MisconfigurationException, match=r"training loader 'b'.*other_data="):
        seen_by(tmp_path, a, b)
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


@pytest.mark.parametrize("by", ["name", "dataset"])
def test_other_data_is_left_alone_if_the_user_says_so(tmp_path, by):
    other = Points(20, first=100)
    seen, asked = seen_by(tmp_path, BASE, other, other_data=["b"] if by == "name" else [other])
    assert seen["a"] == asked
    assert seen["b"] == set(range(100, 120))


def test_the_users_word_does_not_outweigh_what_is_seen(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"other_data=.*'b'.*points of the pool"):
        seen_by(tmp_path, BASE, Subset(BASE, HALF), other_data=["b"])


def test_other_data_that_names_no_loader_is_refused(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"other_data=.*'c'.*'a', 'b'"):
        seen_by(tmp_path, BASE, BASE, other_data=["c"])


def test_another_view_of_the_pool_is_narrowed_if_the_user_says_so(tmp_path):
    seen, asked = seen_by(tmp_path, BASE, Reader(BASE), same_data=["b"])
    assert seen["a"] == seen["b"] == asked
    with pytest.raises(MisconfigurationException, match=r"same_data=.*'b' has 20 items, the pool 60"):
        seen_by(tmp_path / "other", BASE, Reader(Subset(BASE, range(20))), same_data=["b"])


def test_the_labels_of_an_oracle_follow_the_items(tmp_path):
    """In reversed order, and drawn with the labels that were given, not with the dataset's own."""
    seen = {}

    class Notes(Both):
        def training_step(self, batch, batch_idx):
            for number, label in zip(batch["b"][-1].int().tolist(), batch["b"][1].tolist(), strict=True):
                seen[number] = label
            return super().training_step(batch, batch_idx)

    active = ActiveLearning(
        6, 12, selector=RandomSelector(), initial=6, oracle=lambda indices: [i % 2 for i in indices]
    )
    data = Loaders(a=Subset(BASE, HALF), b=Subset(BASE, HALF[::-1]))
    active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), Notes(), datamodule=data)
    assert len(seen) == 12
    assert all(label == number % 2 for number, label in seen.items())
