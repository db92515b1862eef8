"""The training loader is narrowed to labeled points, whatever it is and wherever it comes from."""

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import CombinedLoader
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
    random_split,
)

from lightning_diffal import LabeledSampler
from lightning_diffal.plugin.data.guard import check_training_loaders
from lightning_diffal.plugin.data.loaders import restrict_to_labeled
from lightning_diffal.plugin.data.samplers import LabeledBatches
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet, val_loader


class GivenData(Data):
    """A DataModule whose training loaders are made by a function of the dataset."""

    def __init__(self, make, dataset=None):
        super().__init__(dataset)
        self.make = make

    def train_dataloader(self):
        return self.make(self.dataset)


class OtherArguments(DataLoader):
    """A subclass whose constructor has arguments of its own."""

    def __init__(self, dataset, flavor, **options):
        super().__init__(dataset, shuffle=True, **options)
        self.flavor = flavor


class EvenFirst(Sampler):
    """A sampler that nobody knows."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        indices = range(len(self.dataset))
        yield from sorted(indices, key=lambda index: index % 2)

    def __len__(self):
        return len(self.dataset)


class Fours(BatchSampler):
    """A batch sampler of the user's own, over the whole dataset."""

    def __init__(self, dataset):
        super().__init__(RandomSampler(dataset), batch_size=4, drop_last=False)


class Pairs:
    """Not even a BatchSampler."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from ([index, index + 1] for index in range(0, self.n, 2))

    def __len__(self):
        return self.n // 2


def named_collate(items):
    return default_collate([(x, int(y)) for x, y in items])


LOADERS = {
    "plain": lambda d: DataLoader(d, batch_size=8),
    "shuffled": lambda d: DataLoader(d, batch_size=8, shuffle=True),
    "seeded": lambda d: DataLoader(d, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "subset": lambda d: DataLoader(Subset(d, range(20, 100)), batch_size=8, shuffle=True),
    "split": lambda d: DataLoader(
        random_split(d, [100, 20], torch.Generator().manual_seed(0))[0], batch_size=8, shuffle=True
    ),
    "subset of a subset": lambda d: DataLoader(Subset(Subset(d, range(0, 120, 2)), range(50)), batch_size=8),
    "collate": lambda d: DataLoader(d, batch_size=8, shuffle=True, collate_fn=named_collate),
    "subclass": lambda d: OtherArguments(d, "strawberry", batch_size=8),
    "drop_last": lambda d: DataLoader(d, batch_size=8, drop_last=True),
    "drop_last of more than there is": lambda d: DataLoader(d, batch_size=64, drop_last=True, shuffle=True),
    "sampler of one's own": lambda d: DataLoader(d, batch_size=8, sampler=EvenFirst(d)),
    "batch sampler of one's own": lambda d: DataLoader(d, batch_sampler=Fours(d)),
    "batch sampler that is none": lambda d: DataLoader(d, batch_sampler=Pairs(len(d))),
    "subset random sampler": lambda d: DataLoader(d, batch_size=8, sampler=SubsetRandomSampler(range(30, 90))),
    "LabeledSampler": lambda d: DataLoader(d, batch_size=8, sampler=LabeledSampler()),
    "list": lambda d: [DataLoader(d, batch_size=8), DataLoader(d, batch_size=4, shuffle=True)],
    "dictionary": lambda d: {"a": DataLoader(d, batch_size=8), "b": DataLoader(d, batch_size=4, shuffle=True)},
    "combined": lambda d: CombinedLoader({"a": DataLoader(d, batch_size=8), "b": DataLoader(d, batch_size=8)}),
}


class AnyBatch(Net):
    """Takes the first of several loaders' batches."""

    def training_step(self, batch, batch_idx):
        batch = batch["a"] if isinstance(batch, dict) else batch
        batch = batch[0] if isinstance(batch[0], (list, tuple)) else batch
        return super().training_step(batch, batch_idx)


def drawn_and_labeled(model, active, base):
    """For each fit, the points of the innermost dataset that it drew, and those that were labeled by then."""
    dataset, known, fits = active.state.dataset, set(), []
    for record, fit in zip(active.state.ledger.records, model.diary, strict=False):
        known |= set(record.indices)
        points = {base_index(dataset, index) for index in known}
        fits.append((fit["drawn"], points))
    assert base is not None
    return fits


def base_index(dataset, index):
    while isinstance(dataset, Subset):
        dataset, index = dataset.dataset, dataset.indices[index]
    return index


@pytest.mark.parametrize("kind", LOADERS)
def test_only_labeled_points_are_ever_drawn(tmp_path, kind):
    active, model, data = learner(budget=25), AnyBatch(), GivenData(LOADERS[kind])
    history = active.fit(quiet(tmp_path, active), model, datamodule=data)
    assert history.labels == [9, 17, 25]
    for drawn, labeled in drawn_and_labeled(model, active, data.dataset):
        for epoch in drawn:
            assert set(epoch) <= labeled
            assert epoch
            assert kind == "drop_last" or set(epoch) == labeled


def test_a_weighted_sampler_keeps_its_weights(tmp_path):
    weights = torch.zeros(120)
    weights[::2] = 1
    data = GivenData(lambda d: DataLoader(d, batch_size=8, sampler=WeightedRandomSampler(weights, 240)))
    active, model = learner(budget=17), Net()
    active.fit(quiet(tmp_path, active), model, datamodule=data)
    for drawn, labeled in drawn_and_labeled(model, active, data.dataset):
        for epoch in drawn:
            assert set(epoch) <= {index for index in labeled if index % 2 == 0}
            assert len(epoch) == 2 * len(labeled), "as many draws for each point as the user had asked for"


def test_points_outside_a_subset_sampler_are_never_asked_about(tmp_path):
    data = GivenData(LOADERS["subset random sampler"])
    active = learner(budget=1000, query_size=20)
    active.fit(quiet(tmp_path, active), Net(), datamodule=data)
    assert set(active.state.pool.labeled.tolist()) == set(range(30, 90))


@pytest.mark.parametrize("workers", [1, 2])
def test_persistent_workers_learn_the_new_labels(tmp_path, workers):
    class Seen(Net):
        def training_step(self, batch, batch_idx):
            self.diary[-1]["drawn"].append([tuple(x.tolist()) for x in batch[0]])
            return super().training_step(batch, batch_idx)

    options = {"num_workers": workers, "persistent_workers": True, "shuffle": True, "multiprocessing_context": "fork"}
    clouds = Clouds()
    kept = DataLoader(clouds, batch_size=8, **options)
    active, model = learner(budget=17), Seen()
    active.fit(quiet(tmp_path, active, limit_val_batches=0), model, datamodule=GivenData(lambda d: kept, clouds))
    for fit, count in zip(model.diary, (9, 17), strict=True):
        assert len({point for batch in fit["drawn"] for point in batch}) == count


def test_a_loader_passed_to_fit(tmp_path):
    active, model, clouds = learner(), Net(), Clouds()
    loader = DataLoader(clouds, batch_size=8, shuffle=True)
    active.fit(quiet(tmp_path, active), model, loader, val_loader())
    for drawn, labeled in drawn_and_labeled(model, active, clouds):
        assert all(set(epoch) == labeled for epoch in drawn)
    assert loader.dataset is clouds, "the user's own loader is not touched"
    assert len(loader) == 15


def test_a_loader_of_the_module(tmp_path):
    clouds = Clouds()

    class Own(Net):
        def train_dataloader(self):
            return DataLoader(clouds, batch_size=8, shuffle=True)

        def val_dataloader(self):
            return val_loader()

    active, model = learner(), Own()
    active.fit(quiet(tmp_path, active), model)
    for drawn, labeled in drawn_and_labeled(model, active, clouds):
        assert all(set(epoch) == labeled for epoch in drawn)
    assert "train_dataloader" not in vars(model)


def test_loaders_that_are_made_anew_each_epoch(tmp_path):
    active, model = learner(budget=17), Net()
    active.fit(quiet(tmp_path, active, reload_dataloaders_every_n_epochs=1), model, datamodule=Data())
    assert [[len(epoch) for epoch in fit["drawn"]] for fit in model.diary] == [[9, 9], [17, 17]]


def test_steps_are_counted_on_the_narrow_loader(tmp_path):
    counts = []

    class Scheduled(Net):
        def configure_optimizers(self):
            counts.append((self.trainer.estimated_stepping_batches, len(self.trainer.datamodule.train_dataloader())))
            return super().configure_optimizers()

    active = learner(budget=17)
    active.fit(quiet(tmp_path, active), Scheduled(), datamodule=Data(batch_size=4))
    assert counts == [(4, 2), (8, 4)], "9 points in batches of 4: the last one joins the second"


def test_a_loader_over_other_data_is_left_alone(tmp_path):
    other = Clouds(40)
    both = GivenData(lambda d: {"a": DataLoader(d, batch_size=8), "b": DataLoader(other, batch_size=8)})
    active, model = learner(budget=17, other_data=["b"]), AnyBatch()
    active.fit(quiet(tmp_path, active), model, datamodule=both)
    for drawn, labeled in drawn_and_labeled(model, active, both.dataset):
        assert all(set(epoch) == labeled for epoch in drawn)


# Batches of one


@pytest.mark.parametrize("count", [9, 17, 25, 33])
def test_a_last_batch_of_one_joins_the_one_before(count):
    batches = LabeledBatches(range(count), 8, False)
    sizes = [len(batch) for batch in batches]
    assert sizes == [8] * (count // 8 - 1) + [9]
    assert len(batches) == len(sizes)
    assert [index for batch in batches for index in batch] == list(range(count))


@pytest.mark.parametrize("drop_last", [True, False])
def test_the_number_of_batches_is_known_before(drop_last):
    for count in range(1, 40):
        batches = LabeledBatches(range(count), 8, drop_last)
        sizes = [len(batch) for batch in batches]
        assert len(batches) == len(sizes) > 0
        assert min(sizes) > 1 or count == 1


def test_batches_of_one_that_the_user_asked_for_stay(tmp_path):
    assert [len(batch) for batch in LabeledBatches(range(3), 1, False)] == [1, 1, 1]


def test_batch_norm_never_sees_a_single_point(tmp_path):
    sizes = []

    class Watched(Net):
        def training_step(self, batch, batch_idx):
            sizes.append(len(batch[0]))
            return super().training_step(batch, batch_idx)

    for place, make in enumerate([LOADERS["shuffled"], LOADERS["LabeledSampler"], LOADERS["sampler of one's own"]]):
        active = learner(folder=tmp_path / str(place))
        active.fit(quiet(tmp_path, active), Watched(), datamodule=GivenData(make))
    assert min(sizes) > 1
    assert 9 in sizes


def test_a_single_labeled_point_and_batch_norm_are_refused_before_training(tmp_path):
    active = learner(initial=1)
    with pytest.raises(MisconfigurationException, match=r"one labeled point.*BatchNorm.*initial=2"):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())


def test_a_single_labeled_point_trains_a_model_without_batch_norm(tmp_path):
    class Plain(Net):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(2, 16), nn.ReLU())

    active = learner(initial=1, budget=9)
    assert active.fit(quiet(tmp_path, active), Plain(), datamodule=Data()).labels == [1, 9]


# The guard


def test_overfitting_batches_stays_within_the_labeled(tmp_path):
    active, model = learner(budget=17), Net()
    with pytest.warns(UserWarning, match="requested to overfit"):
        active.fit(quiet(tmp_path, active, overfit_batches=1, limit_val_batches=0), model, datamodule=Data())
    for drawn, labeled in drawn_and_labeled(model, active, 1):
        assert all(set(epoch) <= labeled and len(epoch) in (8, 9) for epoch in drawn)


@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_a_run_that_could_touch_an_unlabeled_point_stops_before_the_first_step(tmp_path):
    active, model = learner(), Net()
    data = GivenData(LOADERS["LabeledSampler"])
    with pytest.raises(MisconfigurationException, match=r"would train on unlabeled points.*overfit_batches"):
        active.fit(quiet(tmp_path, active, overfit_batches=2), model, datamodule=data)
    assert sum(fit["steps"] for fit in model.diary) == 0


def test_the_guard_knows_a_wide_loader_from_a_narrow_one():
    clouds = Clouds()
    wide = DataLoader(clouds, batch_size=4)
    allowed = [(clouds, {1, 2, 3, 4})]
    check_training_loaders([restrict_to_labeled(wide, [1, 2, 3], None, 0)], allowed, [])
    for wrong in (wide, restrict_to_labeled(wide, [1, 2, 5], None, 0), [1, 2, 3]):
        with pytest.raises(MisconfigurationException, match="unlabeled points"):
            check_training_loaders([wrong], allowed, [])
    other = restrict_to_labeled(DataLoader(Clouds()), [1, 2, 3], None, 0)
    with pytest.raises(MisconfigurationException, match="unlabeled points"):
        check_training_loaders([other], allowed, [])


def test_the_wider_loaders_of_two_subsets_are_refused(tmp_path):
    data = GivenData(lambda d: [DataLoader(Subset(d, range(60))), DataLoader(Subset(d, range(90)))])
    active = learner()
    with pytest.raises(MisconfigurationException, match="60 of its 90 items are points of the pool"):
        active.fit(quiet(tmp_path, active), Net(), datamodule=data)


# What cannot be narrowed


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0


class Endless(Clouds):
    def __len__(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: DataLoader(Stream(), batch_size=4), "Stream is an IterableDataset: its points have no indices"),
        (lambda d: [(torch.zeros(4, 2), torch.zeros(4).long())], "training loader is a tuple|needs a torch DataLoader"),
        (lambda d: DataLoader(d, batch_size=None), "batch_size=None: the dataset makes batches itself"),
        (lambda d: DataLoader(Endless(), batch_size=4, sampler=range(9)), "Endless has no __len__"),
    ],
)
def test_loaders_without_indices_are_refused_by_name(tmp_path, make, message):
    active = learner()
    with pytest.raises(MisconfigurationException, match=message):
        active.fit(quiet(tmp_path, active), Net(), datamodule=GivenData(make))


def test_indices_are_those_of_the_training_dataset(tmp_path):
    joined = ConcatDataset([Clouds(30), Clouds(30)])
    joined.targets = torch.cat([Clouds(30).targets] * 2)

    class Blind(Net):
        def recorded(self):
            return Clouds(3)

    active = learner(budget=1000, query_size=30, initial=[45, 59])
    active.fit(quiet(tmp_path, active, limit_val_batches=0), Blind(), datamodule=Data(joined))
    assert sorted(active.state.pool.labeled.tolist()) == list(range(60))
