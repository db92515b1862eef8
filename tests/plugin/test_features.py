"""Fixed features: every kind, computed once, kept in the folder of the run, never stale."""

import re
import warnings

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import CSVLogger
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import normalize

from lightning_diffal import ActiveLearning, DiffusionActiveLearning, Snapshot, build_graph
from lightning_diffal.plugin.features.fingerprint import hash_of
from lightning_diffal.plugin.features.graph_files import GraphFolder
from lightning_diffal.plugin.features.untrained import looks_untrained
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import CoverageSelector, DiffusionSelector
from tests.plugin.toy_model import Clouds, Data, Net, quiet
from tests.process_group import ProcessGroup

pytestmark = pytest.mark.filterwarnings("ignore")


class Kept:
    """Asks for the first unlabeled points, and keeps what it was given."""

    needs = frozenset({"features"})

    def __init__(self):
        self.snapshots = []

    def __repr__(self):
        return "Kept()"

    def __call__(self, snapshot, size):
        self.snapshots.append(snapshot)
        return snapshot.unlabeled[:size]


def active_with(features, **options):
    return ActiveLearning(
        **{"query_size": 8, "budget": 17, "initial": 9, "selector": Kept(), "pool_batch_size": 8} | options,
        features=features,
    )


def features_of(tmp_path, features, model=None, data=None, **options):
    """The features that the selector got in a run of two fits."""
    active = active_with(features, **options)
    model = model or Net()
    active.fit(quiet(tmp_path, active, limit_val_batches=0), model, datamodule=data or Data())
    (snapshot,) = active.config.selector.function.snapshots
    assert torch.equal(active.state.features, snapshot.features)
    assert snapshot.embeddings is None, "the model is not run for them"
    return snapshot.features


class CountingEncoder(nn.Module):
    """Writes a line to a file for each batch."""

    def __init__(self, file, width=70):
        super().__init__()
        torch.manual_seed(3)
        self.file, self.layers = file, nn.Sequential(nn.Linear(2, width), nn.Dropout(0.5), nn.ReLU())

    def forward(self, x):
        with self.file.open("a") as file:
            file.write(f"{len(x)} {self.training} {torch.is_grad_enabled()}\n")
        return self.layers(x)


def by_numpy(points, dimensions):
    """Unit vectors of the leading principal components."""
    points = points.double().numpy()
    _, _, rows = np.linalg.svd(points - points.mean(0), full_matrices=False)
    rows = rows[:dimensions] * np.sign(rows[np.arange(dimensions), np.abs(rows[:dimensions]).argmax(1)])[:, None]
    return normalize(torch.tensor((points - points.mean(0)) @ rows.T), dim=1).float()


def test_given_rows_and_inputs_are_taken_as_they_are(tmp_path):
    x = Clouds().x
    np.save(tmp_path / "x.npy", x.numpy())
    save_file({"features": x, "other": torch.ones(3)}, tmp_path / "x.safetensors")
    kinds = {
        "tensor": x,
        "array": x.numpy(),
        "npy": str(tmp_path / "x.npy"),
        "safetensors": tmp_path / "x.safetensors",
        "inputs": "inputs",
        "function": lambda batch: batch[0],
    }
    for kind, features in kinds.items():
        assert torch.equal(features_of(tmp_path / kind, features), x), kind


@pytest.mark.parametrize("kind", ["inputs", "rows"])
def test_what_is_reduced_has_unit_length(tmp_path, kind):
    rows = Clouds().x if kind == "inputs" else ROWS
    found = features_of(tmp_path, "inputs" if kind == "inputs" else ROWS, feature_dim=rows.shape[1] - 1)
    torch.testing.assert_close(found, by_numpy(rows, rows.shape[1] - 1), rtol=1e-4, atol=1e-4)


def test_an_encoder_runs_once_in_eval_mode_and_is_left_as_it_was(tmp_path):
    encoder = CountingEncoder(tmp_path / "calls").train()
    encoder.layers[0].eval()
    found = features_of(tmp_path, encoder, feature_dim=2)
    assert (tmp_path / "calls").read_text().splitlines() == ["8 False False"] * 15
    assert [layer.training for layer in encoder.layers] == [False, True, True]
    expected = by_numpy(encoder.eval().layers(Clouds().x).detach(), 2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_resumed_run_reads_them_and_a_changed_encoder_is_another_run(tmp_path):
    for budget in (17, 25):
        active = active_with(CountingEncoder(tmp_path / "calls"), budget=budget)
        active.fit(quiet(tmp_path, active, limit_val_batches=0), Net(), datamodule=Data())
    assert len((tmp_path / "calls").read_text().splitlines()) == 15, "once, not once for each run"
    first, second = active.config.selector.function.snapshots[-1].features, active.state.features
    assert torch.equal(first, second)

    def refused(features, **options):
        active = active_with(features, budget=33, **options)
        with pytest.raises(ValueError, match="the ledger of another run, with features='encoder CountingEncoder"):
            active.fit(quiet(tmp_path, active), Net(), datamodule=Data())

    changed = CountingEncoder(tmp_path / "calls")
    changed.layers[0].weight.data[0, 0] += 1e-6
    refused(changed)
    refused(CountingEncoder(tmp_path / "calls"), feature_dim=3)
    refused(None)


def test_a_file_of_other_features_or_a_damaged_one_is_not_used(tmp_path):
    encoder = CountingEncoder(tmp_path / "calls")
    found, file = features_of(tmp_path, encoder), tmp_path / "active_learning" / "features.npz"
    (tmp_path / "active_learning" / "rounds.jsonl").unlink()
    other = Clouds()
    other.x = other.x + 1
    assert not torch.equal(features_of(tmp_path, encoder, data=Data(other)), found)
    file.write_bytes(file.read_bytes()[:-300])
    active = active_with(encoder, budget=25)
    active.fit(quiet(tmp_path, active, limit_val_batches=0), Net(), datamodule=Data(other))
    assert len((tmp_path / "calls").read_text().splitlines()) == 45


def test_a_layer_is_that_of_the_model_as_it_comes_whatever_was_trained_since(tmp_path):
    model = Net()
    model.backbone[0].weight.data *= 3  # pretrained
    x = Clouds().x
    expected = normalize(model.eval().backbone(x).detach(), dim=1)
    for budget in (9, 17, 25):  # by hand: the model that comes later is trained
        active = active_with("backbone", budget=budget, selector=Kept())
        quiet(tmp_path, active, limit_val_batches=0, max_epochs=4).fit(model, datamodule=Data())
        torch.testing.assert_close(active.state.features, expected)
    assert not torch.allclose(normalize(model.eval().backbone(x).detach(), dim=1), expected, atol=0.01)
    (tmp_path / "active_learning" / "features.npz").unlink()
    active = active_with("backbone", budget=33)
    with pytest.raises(MisconfigurationException, match="the model has been trained since"):
        quiet(tmp_path, active, limit_val_batches=0).fit(model, datamodule=Data())


@pytest.mark.filterwarnings("default")
def test_who_names_the_penultimate_layer_of_an_untrained_network_is_told(tmp_path):
    with pytest.warns(UserWarning, match=r"features='backbone' is the input of the classifier.*75%.*90%"):
        features_of(tmp_path / "untrained", "backbone")
    pretrained = Net()
    pretrained.backbone[1].num_batches_tracked += 1
    for layer, model in (("backbone", pretrained), ("backbone.0", Net())):
        with warnings.catch_warnings(record=True) as caught:
            features_of(tmp_path / layer, layer, model)
        assert not [one for one in caught if "untrained" in str(one.message)]
    assert looks_untrained(nn.Conv2d(3, 8, 3))
    assert not looks_untrained(nn.Linear(4, 4).requires_grad_(False).apply(lambda layer: layer.weight.fill_(0.6)))


def test_the_embedding_stands_in_where_there_are_none(tmp_path):
    active = active_with(None)
    active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    (snapshot,) = active.config.selector.function.snapshots
    assert snapshot.features is None
    assert snapshot.fixed_points.shape == (120, 16)
    assert active.state.features is None


def test_a_fast_dev_run_tries_the_encoder_and_writes_nothing(tmp_path):
    encoder = CountingEncoder(tmp_path / "calls")
    active = active_with(encoder, initial=0)
    active.fit(quiet(tmp_path, active, fast_dev_run=True), Net(), datamodule=Data())
    assert len((tmp_path / "calls").read_text().splitlines()) == 4
    assert not (tmp_path / "active_learning").exists()


def test_a_model_that_cannot_be_trained_fails_before_the_pool_is_encoded(tmp_path):
    class Untrainable(Net):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("shapes do not fit")

    active = active_with(CountingEncoder(tmp_path / "calls"), oracle=lambda indices: [0] * len(indices))
    with pytest.raises(MisconfigurationException, match=r"One training batch was tried.*shapes do not fit"):
        active.fit(quiet(tmp_path, active, limit_val_batches=0), Untrainable(), datamodule=Data())
    assert not (tmp_path / "calls").exists()


ROWS = torch.randn(120, 4)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.randn(120), r"features=\.\.\.\): one row for each point, shape \(n, d\), is needed, \(120,\) was given"),
        (torch.randn(120, 2, 2).numpy(), r"\(120, 2, 2\) was given\. flatten\(1\) makes rows"),
        (torch.ones(120, 2).long(), "floating-point numbers are needed, torch.int64 was given"),
        (np.array([["a"]]), "floating-point numbers is needed, <U1 was given"),
        (ROWS.index_fill(0, torch.tensor([7]), torch.nan), "1 of 120 rows hold NaN or infinity, the first is row 7"),
        (torch.ones(120, 3), "all 120 rows are the same"),
        ("nowhere.npy", "features='nowhere.npy'\\): there is no such file"),
        ("tests/plugin/toy_model.py", r"a file \.npy or \.safetensors is needed"),
        (7, r"features=7\): a tensor or array of one row for each point"),
        (nn.Linear, "an encoder"),
        (lambda module, batch: batch, r"a function of one argument, the batch, is needed; this one takes \(module, b"),
    ],
)
def test_what_cannot_be_features_is_refused_at_once(features, message):
    with pytest.raises(ValueError, match=message):
        active_with(features)
    with pytest.raises(ValueError, match=r"feature_dim=0\): a whole number of at least 1"):
        active_with(ROWS, feature_dim=0)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (ROWS[:119], "119 rows were given, and the training dataset has 120 points"),
        ("backbon", "features='backbon': the model has no such layer.*Did you mean 'backbone'"),
        ("pool", "The children of Net are backbone, head"),
        (nn.Sequential(nn.Flatten(0)), r"features=Sequential gave .* for a batch of 8 points"),
        (lambda batch: batch, r"features=<lambda> gave .* for a batch of 8 points"),
        (lambda batch: batch[0] * torch.nan, "120 of 120 rows hold NaN"),
        (lambda batch: batch[0] * 0, "all 120 rows are the same"),
    ],
)
def test_what_does_not_fit_model_or_data_is_refused_before_a_label_is_spent(features, message, tmp_path):
    active = active_with(features)
    with pytest.raises((MisconfigurationException, ValueError), match=message):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


def test_the_graph_of_features_is_built_once_and_read_back(tmp_path):
    class OnGraph(Kept):
        def __call__(self, snapshot, size):
            file = tmp_path / "active_learning" / "features_graph_5.npz"
            before = file.stat().st_mtime_ns if file.exists() else None
            graphs.append(snapshot.feature_graph(5, StageTimer()))
            written.append(file.stat().st_mtime_ns != before)
            return super().__call__(snapshot, size)

    graphs, written, x = [], [], Clouds().x
    active = active_with(x, selector=OnGraph(), budget=25)
    active.fit(quiet(tmp_path, active, limit_val_batches=0), Net(), datamodule=Data())
    assert written == [True, False]
    for graph in graphs:
        assert same_graph(graph, build_graph(x, 5))


def test_auto_takes_what_predicts_the_labels_best_and_says_so(tmp_path, caplog):
    class Confused(Net):
        """Its embedding is noise, before and after training."""

        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(Noise(), nn.Linear(1, 16))

    class Noise(nn.Module):
        def forward(self, x):
            return (1e4 * x[:, :1]).sin()

    logger = CSVLogger(tmp_path)
    active = active_with("auto", budget=25)
    with caplog.at_level("INFO"):
        history = active.fit(quiet(tmp_path, active, limit_val_batches=0, logger=logger), Confused(), datamodule=Data())
    for record in history.records[1:3]:
        assert max(record.feature_accuracy, key=record.feature_accuracy.get) == "inputs"
    assert re.search(r'features="auto": inputs, by the leave-one-out accuracy of 9 labels \(inputs \d', caplog.text)
    assert "active/feature_accuracy_inputs" in (next(tmp_path.rglob("metrics.csv"))).read_text()
    for snapshot in active.config.selector.function.snapshots:
        assert torch.equal(snapshot.features, Clouds().x)
    assert torch.equal(active.state.features, Clouds().x)


def same_graph(one, other):
    return all(torch.equal(getattr(one, part), getattr(other, part)) for part in ("crow", "col", "weight"))


def build_and_read(ranks, folder, points):
    keep = GraphFolder(folder, "features")
    built, read = keep(points, 4, ranks=ranks), keep(points, 4, ranks=ranks)
    return same_graph(built, build_graph(points, 4)) and same_graph(read, built) and len(list(folder.iterdir()))


def test_two_processes_read_the_graph_that_they_have_built_and_no_other(tmp_path):
    points = Clouds().x.double()
    group = ProcessGroup(2)
    try:
        assert group(build_and_read, tmp_path, points) == [1, 1]
        assert group(build_and_read, tmp_path, points + torch.randn(120, 2)) == [1, 1], "not the graph of other points"
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[:-100])
        assert group(build_and_read, tmp_path, points) == [1, 1], "nor a damaged one"
    finally:
        group.stop()


def test_the_hash_of_a_function_is_that_of_its_source_and_of_what_it_reads():
    def encoder_with(weight, scale):
        calls = 0

        def encode(batch):
            nonlocal calls
            calls += 1
            return batch[0] @ weight * scale

        return encode

    encode = encoder_with(torch.ones(2, 2), 3)
    before = hash_of(encode)
    encode([torch.ones(1, 2)])
    assert hash_of(encode) == before == hash_of(encoder_with(torch.ones(2, 2), 3)), "what it counts does not matter"
    assert len({before, hash_of(encoder_with(torch.zeros(2, 2), 3)), hash_of(encoder_with(torch.ones(2, 2), 4))}) == 3
    assert hash_of(lambda batch: batch[0]) != hash_of(lambda batch: batch[1])


def test_coverage_is_the_criterion_where_there_are_features(tmp_path):
    active = DiffusionActiveLearning(8, 25, initial=9, features="inputs", neighbors=5)
    assert active.config.selector == CoverageSelector(neighbors=5)
    history = active.fit(quiet(tmp_path, active, limit_val_batches=0), Net(), datamodule=Data())
    assert history.labels == [9, 17, 25]
    reference = Kept()
    reference.needs = {"features", "logits"}
    same = active_with(Clouds().x, selector=reference)
    same.fit(quiet(tmp_path / "b", same, limit_val_batches=0), Net(), datamodule=Data())
    (snapshot,) = reference.snapshots
    snapshot = Snapshot(labels=snapshot.labels, num_classes=3, features=Clouds().x, logits=snapshot.logits)
    assert history.records[1].indices == CoverageSelector(neighbors=5)(snapshot, 8).indices.tolist()
    assert (tmp_path / "active_learning" / "features_graph_5.npz").exists()


def test_which_criterion_and_what_it_takes():
    def selector(**options):
        return type(DiffusionActiveLearning(8, 25, **options).config.selector)

    assert selector() is selector(features="inputs", criterion="paper") is selector(criterion="paper", mini_batch=4)
    assert selector() is DiffusionSelector
    assert selector(features="inputs") is selector(criterion="coverage") is CoverageSelector
    for given in ({"mini_batch": 4}, {"steps": 2}, {"soft_start": True}, {"shrink_below": 0.1}, {"backend": "torch"}):
        (name,) = given
        with pytest.raises(ValueError, match=rf"{name}=.*coverage takes no {name}\. With features, criterion"):
            selector(features="inputs", **given)
    with pytest.raises(ValueError, match=r"criterion='cover'\): \"auto\", \"coverage\" or \"paper\" is needed"):
        selector(criterion="cover")
