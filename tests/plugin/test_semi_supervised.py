"""`unlabeled=` names a training loader that is left whole, with its inputs and without its labels."""

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import CombinedLoader
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, Subset

from tests.plugin.counting import Counted, Recorder, Small, asks_first, check_only_labeled_were_drawn
from tests.plugin.toy_model import quiet

N, CLASSES = 60, 4


def points():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, 8, generator=generator)


def pool():
    return Counted((x, index % CLASSES) for index, x in enumerate(points()))


class TwoViews(Dataset):
    """The pool once more, each point weakly and strongly augmented, as FixMatch draws it."""

    def __init__(self):
        self.x, self.drawn = points(), []

    def __len__(self):
        return N

    def __getitem__(self, index):
        self.drawn.append(int(index))
        x = self.x[index]
        return (x + 0.1, x - 0.1), index % CLASSES


class FixMatch(Small):
    """Learns from labels, and from its own sure predictions on unlabeled points."""

    def __init__(self, key_labeled, key_unlabeled):
        super().__init__()
        self.keys, self.unlabeled_labels, self.unlabeled_points = (key_labeled, key_unlabeled), [], set()

    def training_step(self, batch, batch_idx):
        (x, y), ((weak, strong), hidden) = batch[self.keys[0]], batch[self.keys[1]]
        self.unlabeled_labels += torch.as_tensor(hidden).flatten().tolist()
        self.unlabeled_points |= {round(value, 4) for value in (weak[:, 0] - 0.1).tolist()}
        with torch.no_grad():
            guess = self(weak).argmax(dim=1)
        return cross_entropy(self(x), y) + cross_entropy(self(strong), guess)


def as_dictionary(labeled, unlabeled):
    return {"labeled": labeled, "unlabeled": unlabeled}


def as_list(labeled, unlabeled):
    return [unlabeled, labeled]


def as_combined(labeled, unlabeled):
    return CombinedLoader({"labeled": labeled, "unlabeled": unlabeled}, "max_size_cycle")


@pytest.mark.parametrize(
    ("arrange", "labeled", "unlabeled"),
    [(as_dictionary, "labeled", "unlabeled"), (as_list, 1, 0), (as_combined, "labeled", "unlabeled")],
)
@pytest.mark.filterwarnings("ignore:.*gives other items")
def test_the_unlabeled_loader_is_whole_and_without_labels(tmp_path, arrange, labeled, unlabeled):
    dataset, views = pool(), TwoViews()
    recorder, model, active = Recorder(dataset), FixMatch(labeled, unlabeled), asks_first(unlabeled=unlabeled)
    loaders = arrange(
        DataLoader(dataset, batch_size=4, shuffle=True), DataLoader(views, batch_size=20, shuffle=True, drop_last=True)
    )
    history = active.fit(quiet(tmp_path, active, recorder, max_epochs=2), model, loaders)
    assert history.labels == [12, 20]
    check_only_labeled_were_drawn(recorder, tmp_path)
    assert set(views.drawn) == set(range(N)), "left whole"
    assert model.unlabeled_points == {round(value, 4) for value in points()[:, 0].tolist()}
    assert set(model.unlabeled_labels) == {-1}, "none of its labels is seen"


def test_the_same_dataset_may_be_drawn_from_by_both_loaders(tmp_path):
    class Both(Small):
        hidden = ()

        def training_step(self, batch, batch_idx):
            self.hidden = (*self.hidden, *batch["u"][1].tolist())
            return cross_entropy(self(batch["l"][0]), batch["l"][1]) + self(batch["u"][0]).square().mean()

    dataset, model, active = pool(), Both(), asks_first(unlabeled="u")
    loaders = {"l": DataLoader(dataset, batch_size=4, shuffle=True), "u": DataLoader(dataset, batch_size=20)}
    active.fit(quiet(tmp_path, active, max_epochs=1), model, loaders)
    assert set(model.hidden) == {-1}


def test_a_part_of_the_dataset_may_be_the_unlabeled_loader(tmp_path):
    dataset, active = pool(), asks_first(unlabeled="u")

    class Both(Small):
        def training_step(self, batch, batch_idx):
            return cross_entropy(self(batch["l"][0]), batch["l"][1]) + self(batch["u"][0]).square().mean()

    loaders = {"l": DataLoader(dataset, batch_size=4), "u": DataLoader(Subset(dataset, range(50)), batch_size=20)}
    assert active.fit(quiet(tmp_path, active, max_epochs=1), Both(), loaders).labels == [12, 20]


@pytest.mark.parametrize("kind", ["dictionary", "one-hot", "inputs alone"])
def test_labels_are_hidden_wherever_they_are(tmp_path, kind):
    x = points()
    items = {
        "dictionary": [{"x": x[i], "label": i % CLASSES} for i in range(N)],
        "one-hot": [(x[i], torch.eye(CLASSES)[i % CLASSES]) for i in range(N)],
        "inputs alone": list(x),
    }[kind]
    seen = []

    class Both(Small):
        def training_step(self, batch, batch_idx):
            seen.append(batch["u"])
            return cross_entropy(self(batch["l"][0]), batch["l"][1])

    active = asks_first(unlabeled="u")
    loaders = {"l": DataLoader(pool(), batch_size=4), "u": DataLoader(Counted(items), batch_size=20)}
    active.fit(quiet(tmp_path, active, max_epochs=1), Both(), loaders)
    if kind == "dictionary":
        assert all((batch["label"] == -1).all() for batch in seen)
    elif kind == "one-hot":
        assert all((batch[1] == -1).all() and batch[1].shape[1:] == (CLASSES,) for batch in seen)
    else:
        assert all(torch.equal(batch, x[: len(batch)]) or batch.shape[1:] == (8,) for batch in seen)


@pytest.mark.parametrize("name", ["unlabelled", 2])
def test_a_loader_that_is_not_there_is_refused_by_name(tmp_path, name):
    active = asks_first(unlabeled=name)
    loaders = {"labeled": DataLoader(pool(), batch_size=4), "unlabeled": DataLoader(pool(), batch_size=20)}
    with pytest.raises(MisconfigurationException, match=rf"unlabeled={name!r}: .*'labeled', 'unlabeled'"):
        active.fit(quiet(tmp_path, active), Small(), loaders)


def test_one_loader_alone_cannot_be_the_unlabeled_one(tmp_path):
    active = asks_first(unlabeled=0)
    with pytest.raises(MisconfigurationException, match=r"unlabeled=0: .*one training loader"):
        active.fit(quiet(tmp_path, active), Small(), DataLoader(pool(), batch_size=4))


def test_the_argument_is_a_name_or_a_position():
    with pytest.raises(
        ValueError, match=r"ActiveLearning\(unlabeled=1\.5\): the name or position of a training loader"
    ):
        asks_first(unlabeled=1.5)
