"""candidates=...: a query sees a part of the pool, drawn by seed in each round."""

import pytest
import torch

from lightning_diffal import ActiveLearning, DiffusionActiveLearning
from lightning_diffal.selectors import CoverageSelector
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore")


class Kept:
    """Asks for the first unlabeled points, and keeps what it was given."""

    def __init__(self, needs):
        self.needs, self.snapshots = frozenset(needs), []

    def __repr__(self):
        return "Kept()"

    def __call__(self, snapshot, size):
        self.snapshots.append(snapshot)
        return snapshot.unlabeled[:size]


class Counting(Clouds):
    """Notes which points are embedded: all that are read outside of training, after the first fit."""

    def __init__(self):
        super().__init__()
        self.read = []

    def __getitem__(self, index):
        if not self.recording:
            self.read.append(int(index))
        return super().__getitem__(index)


class Plain(Net):
    """Without a diary, whose dataset is not found under that of diffused labels."""

    on_train_start = on_train_epoch_end = on_train_end = lambda self: None

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])


def run(tmp_path, needs=("embeddings",), seed=0, dataset=None, model=None, **options):
    active = ActiveLearning(
        **{"query_size": 8, "budget": 25, "initial": 9, "selector": Kept(needs), "seed": seed, "candidates": 30}
        | options
    )
    history = active.fit(quiet(tmp_path, active, limit_val_batches=0), model or Net(), datamodule=Data(dataset))
    return active, history, getattr(active.config.selector.function, "snapshots", [])


def points_of(snapshot, dataset):
    """The indices of what a selector saw, by the features, which are the inputs and all different."""
    return [int((dataset.x == row).all(dim=1).nonzero()) for row in snapshot.features]


def test_a_query_sees_all_labeled_points_and_as_many_drawn_ones_as_asked_for(tmp_path):
    active, history, (first, second) = run(tmp_path / "a")
    assert [(len(s.labels), len(s.labeled), s.num_unlabeled) for s in (first, second)] == [(39, 9, 30), (47, 17, 30)]
    truth = Clouds().targets
    for record in history.records:
        assert torch.equal(truth[record.indices], torch.tensor(record.labels)), "indices of the dataset, not rows"
    again = run(tmp_path / "b")[1]
    assert [record.indices for record in again.records] == [record.indices for record in history.records]
    other = run(tmp_path / "c", seed=1)[2]
    assert not torch.equal(other[0].embeddings, first.embeddings)
    assert {question.index for question in active.audit()} <= set(active.state.pool.labeled.tolist())


def test_only_what_a_query_sees_is_embedded(tmp_path):
    dataset, selector = Counting(), Kept({"embeddings"})
    embedded = []

    def keep_reads(snapshot, size):
        embedded.append(sorted(dataset.read))
        return selector(snapshot, size)

    keep_reads.needs = selector.needs
    model = Net()
    model.on_train_end = lambda: (setattr(dataset, "recording", False), dataset.read.clear())
    active, history, _ = run(tmp_path, selector=keep_reads, budget=17, candidates=20, dataset=dataset, model=model)
    assert embedded == [active.embedded]
    assert len(active.embedded) == 29
    assert {*history.records[0].indices, *history.records[1].indices} <= set(active.embedded)


def test_neighbors_of_labeled_points_by_fixed_features_are_seen_too(tmp_path):
    dataset = Clouds()
    _, history, (snapshot, _) = run(tmp_path, needs=("features",), features="inputs", candidates=10)
    seen, labeled = set(points_of(snapshot, dataset)), history.records[0].indices
    neighbors = torch.cdist(dataset.x, dataset.x)[labeled].argsort()[:, : 1 + 10]  # ⌈2 ln 120⌉ and itself
    near = set(neighbors.flatten().tolist())
    assert near <= seen
    assert len(near) < len(seen) <= len(near) + 10


def test_coverage_and_learning_from_the_graph_take_candidates(tmp_path):
    active = DiffusionActiveLearning(
        8, 25, initial=9, features="inputs", candidates=20, learn_from_graph=True, neighbors=5
    )
    history = active.fit(quiet(tmp_path, active, limit_val_batches=0), Plain(), datamodule=Data())
    assert isinstance(active.config.selector, CoverageSelector)
    assert [record.labeled for record in history.records[1:]] == [9, 17, 25]
    assert len(active.state.candidates) == len(active.state.features) == 120


def test_a_pool_no_larger_than_that_is_seen_whole(tmp_path):
    plain = run(tmp_path / "a", candidates=None)[1]
    large = run(tmp_path / "b", candidates=1_000_000)[1]
    assert [record.indices for record in plain.records] == [record.indices for record in large.records]


@pytest.mark.parametrize(("given", "needed"), [(0, "candidates=0"), (7, "at least query_size=8 is needed")])
def test_too_few_candidates_are_refused(given, needed):
    with pytest.raises(ValueError, match=needed):
        learner(candidates=given)
