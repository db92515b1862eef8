"""One pass over the pool: the right layer, the right mode, and everything as it was before."""

import lightning as L  # noqa: N812
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

from lightning_diffal import ActiveLearning
from lightning_diffal.plugin.data.copy_loader import pool_loader
from lightning_diffal.plugin.model.embedding import RowBuffer
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet


class Keeper:
    """A selector that keeps the snapshot it was given."""

    def __init__(self, *needs, passes=1):
        self.needs, self.passes, self.snapshots = frozenset(needs), passes, []

    def __repr__(self):
        return "Keeper()"

    def __call__(self, snapshot, size):
        self.snapshots.append(snapshot)
        return snapshot.unlabeled[:size]


def snapshot_of(tmp_path, model, data=None, needs=("embeddings", "logits"), passes=1, trainer=None, **options):
    keeper = Keeper(*needs, passes=passes)
    options = {"pool_batch_size": 8} | options
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=keeper, **options)
    quiet(tmp_path, active, **trainer or {}).fit(model, datamodule=data or Data())
    return keeper.snapshots[0]


def by_hand(model, part, dataset=None):
    dataset = dataset or Clouds()
    model.eval()
    with torch.no_grad():
        return part(dataset.x)


def test_without_a_layer_the_input_of_the_classifier_is_the_embedding(tmp_path):
    model = Net()
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.embeddings, by_hand(model, model.backbone), atol=1e-6)
    assert torch.allclose(snapshot.logits, by_hand(model, model), atol=1e-6)
    assert snapshot.num_classes == 3


def test_a_named_layer_gives_its_output(tmp_path):
    model = Net()
    snapshot = snapshot_of(tmp_path, model, layer="backbone.0")
    assert torch.allclose(snapshot.embeddings, by_hand(model, model.backbone[0]), atol=1e-6)
    assert torch.allclose(snapshot.logits, by_hand(model, model), atol=1e-6)


def test_convolutions_are_flattened(tmp_path):
    class Pictures(Net):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Unflatten(1, (1, 1, 2)), nn.Conv2d(1, 4, 1), nn.Flatten(), nn.Linear(8, 16)
            )

    assert snapshot_of(tmp_path, Pictures(), layer="backbone.1").embeddings.shape == (120, 8)


class Shapes(Net):
    """A model whose parts misbehave."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.recurrent = nn.LSTM(2, 4, batch_first=True)
        self.doubled = nn.Identity()

    def forward(self, x):
        self.recurrent(x[:, None])
        self.doubled(torch.cat([x, x]))
        return super().forward(x)


# Each is found by a rehearsal with a few batches, before anything is trained.
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("unused", r"layer='unused': it did not run in the forward pass"),
        ("recurrent", r"layer='recurrent' gave a tuple of \(Tensor, tuple\), a tensor is needed"),
        ("doubled", r"layer='doubled' gave Tensor of shape \(16, 2\).* for a batch of 8 points"),
        ("backbone.7", r"layer='backbone.7': the model has no such submodule. The children of Sequential are 0, 1, 2"),
        ("spine", r"layer='spine': the model has no such submodule. The children of Shapes are backbone, head, unused"),
    ],
)
def test_a_layer_that_gives_no_embedding_is_an_error_that_says_why(tmp_path, layer, message):
    model = Shapes()
    with pytest.raises(MisconfigurationException, match=message):
        snapshot_of(tmp_path, model, layer=layer)
    assert not model.diary
    assert not list(tmp_path.iterdir()), "and nothing is written"


class Convolutional(Net):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Unflatten(1, (2, 1)), nn.Conv1d(2, 16, 1))
        self.head = nn.Sequential(nn.Conv1d(16, 3, 1), nn.Flatten())


@pytest.mark.parametrize("layer", [None, "backbone.1"])
def test_a_convolution_may_be_the_classifier(tmp_path, layer):
    model = Convolutional()
    snapshot = snapshot_of(tmp_path, model, layer=layer)
    assert torch.allclose(snapshot.embeddings, by_hand(model, model.backbone)[..., 0], atol=1e-6)
    assert torch.allclose(snapshot.logits, by_hand(model, model), atol=1e-6), "what the model returned"


def test_one_logit_is_a_binary_classifier(tmp_path):
    class Binary(Net):
        def __init__(self):
            super().__init__(classes=1)

        def training_step(self, batch, batch_idx):
            self.diary[-1]["steps"] += 1
            return nn.functional.binary_cross_entropy_with_logits(self(batch[0])[:, 0], batch[1].float())

    model = Binary()
    snapshot = snapshot_of(tmp_path, model, Data(Clouds(classes=2)))
    assert snapshot.num_classes == 2
    sigmoid = by_hand(model, model, Clouds(classes=2)).sigmoid()[:, 0]
    assert torch.allclose(snapshot.probabilities[:, 1], sigmoid, atol=1e-6)


# What goes into the model


class Items(Clouds):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return self.shape(x, int(y), index)


class Takes(Net):
    """Trains on items of any shape, by a function from the batch to (x, y)."""

    def __init__(self, pair, forward=None):
        super().__init__()
        self.pair, self.other = pair, forward

    def training_step(self, batch, batch_idx):
        self.diary[-1]["steps"] += 1
        x, y = self.pair(batch)
        return cross_entropy(self.head(self.backbone(x)), y)


class TakesTwo(Takes):
    def forward(self, first, second):
        return self.head(self.backbone(torch.stack([first, second], 1)))


class TakesNames(Takes):
    def forward(self, image, mask=None):
        assert mask is None or mask.all()
        return self.head(self.backbone(image))


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        (lambda x, y, i: (x, y), lambda: Takes(lambda b: b)),
        (lambda x, y, i: [x, y], lambda: Takes(lambda b: b)),
        (lambda x, y, i: {"image": x, "label": y}, lambda: Takes(lambda b: (b["image"], b["label"]))),
        (
            lambda x, y, i: {"image": x, "label": y, "path": str(i)},
            lambda: TakesNames(lambda b: (b["image"], b["label"])),
        ),
        (
            lambda x, y, i: {"image": x, "mask": torch.ones(1), "target": y},
            lambda: TakesNames(lambda b: (b["image"], b["target"])),
        ),
        (lambda x, y, i: (x[0], x[1], y), lambda: TakesTwo(lambda b: (torch.stack([b[0], b[1]], 1), b[2]))),
    ],
    ids=["tuple", "list", "dictionary", "names", "more names", "two inputs"],
)
def test_the_inputs_of_a_batch_are_found(tmp_path, shape, model):
    model, dataset = model(), Items(shape)
    snapshot = snapshot_of(tmp_path, model, Data(dataset), trainer={"limit_val_batches": 0})
    assert torch.allclose(snapshot.embeddings, by_hand(model, model.backbone), atol=1e-6)


def test_inputs_that_cannot_be_told_apart_are_an_error(tmp_path):
    dataset = Items(lambda x, y, i: {"first": x[0], "second": x[1], "label": y})
    model = Takes(lambda b: (torch.stack([b["first"], b["second"]], 1), b["label"]))
    with pytest.raises(MisconfigurationException, match=r"keys \['first', 'label', 'second'\].*forward takes \(x\)"):
        snapshot_of(tmp_path, model, Data(dataset), trainer={"limit_val_batches": 0})
    snapshot = snapshot_of(
        tmp_path / "explicit",
        model,
        Data(dataset),
        trainer={"limit_val_batches": 0},
        forward=lambda module, batch: module(torch.stack([batch["first"], batch["second"]], 1)),
    )
    assert torch.allclose(snapshot.embeddings, by_hand(model, model.backbone), atol=1e-6)


def test_predict_step_is_used_where_the_user_wrote_one(tmp_path):
    class Predicts(Net):
        def predict_step(self, batch, batch_idx):
            return self(2 * batch[0])

    model = Predicts()
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.embeddings, by_hand(model, lambda x: model.backbone(2 * x)), atol=1e-6)


def test_the_batch_hooks_of_the_user_are_called(tmp_path):
    class Hooked(Data):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return [batch[0] + 1, batch[1]]

    class After(Net):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return [batch[0] * (5 if self.trainer.training else 3), batch[1]]

    model = After()
    with pytest.warns(UserWarning, match="overridden"):
        snapshot = snapshot_of(tmp_path, model, Hooked())
    assert torch.allclose(snapshot.embeddings, by_hand(model, lambda x: model.backbone(3 * (x + 1))), atol=1e-6)


# The pool without training augmentation


class Augmented(Clouds):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(2), y


def test_a_random_training_dataset_is_warned_about_once(tmp_path):
    active = learner(budget=25)
    with pytest.warns(UserWarning, match="gives other items each time") as caught:
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data(Augmented()))
    assert len([w for w in caught if "gives other items" in str(w.message)]) == 1


def test_the_pool_is_embedded_from_what_the_user_offers(tmp_path):
    clouds = Clouds()
    plain = TensorDataset(clouds.x, torch.zeros(120).long())

    class Offers(Data):
        def pool_dataloader(self):
            return DataLoader(plain, batch_size=50, shuffle=True)

    for place, (data, options) in enumerate(
        [
            (Offers(Augmented()), {}),
            (Data(Augmented()), {"pool": plain}),
            (Data(Augmented()), {"pool": DataLoader(plain, batch_size=7), "pool_batch_size": 11}),
        ]
    ):
        model = Net()
        snapshot = snapshot_of(tmp_path / str(place), model, data, **options)
        assert torch.allclose(snapshot.embeddings, by_hand(model, model.backbone), atol=1e-6), "in dataset order"


def test_a_pool_of_another_size_is_refused(tmp_path):
    with pytest.raises(MisconfigurationException, match="100 points, where the training dataset has 120"):
        snapshot_of(tmp_path, Net(), pool=Clouds(100))


# Nothing of the model changes


class Frozen(Net):
    """Its BatchNorm is frozen, in eval mode while the rest trains, and one part takes no gradient."""

    def __init__(self):
        super().__init__()
        self.backbone[0].requires_grad_(False)

    def on_train_epoch_start(self):
        self.backbone[1].eval()


def state_of(model):
    return {
        "training": {name: child.training for name, child in model.named_modules()},
        "gradients": {name: p.requires_grad for name, p in model.named_parameters()},
        "values": {name: value.clone() for name, value in model.state_dict().items()},
        "hooks": sum(len(child._forward_hooks) for child in model.modules()),
        "device": model.device,
    }


def test_the_model_is_given_back_as_it_was(tmp_path):
    states = []

    class Record(L.Callback):
        def on_train_end(self, trainer, pl_module):
            states.append(state_of(pl_module))

        def teardown(self, trainer, pl_module, stage):
            states.append(state_of(pl_module))

    active, model = learner(), Frozen()
    quiet(tmp_path, active, Record()).fit(model, datamodule=Data())
    before, after = states
    assert before.pop("values").keys() == after["values"].keys()
    values = after.pop("values")
    assert before == after
    assert not after["training"]["backbone.1"]
    assert after["training"]["head"]
    assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())


def test_an_error_in_the_pass_gives_the_model_back_too(tmp_path):
    def fails(module, batch):
        raise RuntimeError("no")

    active, model = learner(forward=fails), Net()
    with pytest.raises(RuntimeError, match="no"):
        quiet(tmp_path, active).fit(model, datamodule=Data())
    assert all(child.training for child in model.modules())
    assert not any(child._forward_hooks for child in model.modules())


@pytest.mark.parametrize("form", ["whole", "part", "in place"])
@pytest.mark.filterwarnings("ignore")
def test_compiled_models_work(tmp_path, form):
    model = Net()
    given = model
    if form == "whole":
        given = torch.compile(model, backend="eager")
    elif form == "part":
        model.backbone = torch.compile(model.backbone, backend="eager")
    else:
        model.compile(backend="eager")
    keeper = Keeper("embeddings")
    layer = "backbone.0" if form == "part" else None
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=keeper, layer=layer)
    quiet(tmp_path, active).fit(given, datamodule=Data())
    inner = getattr(model.backbone, "_orig_mod", model.backbone)
    expected = by_hand(model, inner[0] if layer else inner)
    assert torch.allclose(keeper.snapshots[0].embeddings, expected, atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true", "64-true"])
@pytest.mark.filterwarnings("ignore")
def test_the_precision_of_the_trainer_is_used(tmp_path, precision):
    model = Net()
    snapshot = snapshot_of(tmp_path, model, trainer={"precision": precision})
    wide = torch.float64 if precision == "64-true" else torch.float32
    assert snapshot.embeddings.dtype == snapshot.logits.dtype == wide
    exact = by_hand(model.float(), model.backbone).to(wide)
    coarse = (snapshot.embeddings - exact).abs().max()
    assert coarse < (1e-5 if precision == "64-true" else 0.1)
    if precision != "64-true":
        assert coarse > 1e-5, "it was computed in half precision"


# Dropout


class Forgetful(Net):
    def __init__(self):
        super().__init__()
        self.backbone.append(nn.Dropout(0.5))


def test_stochastic_passes_train_only_the_dropout(tmp_path):
    model = Forgetful()
    snapshot = snapshot_of(tmp_path, model, needs=("stochastic", "logits"), passes=400)
    mean, once = snapshot.stochastic.probabilities, snapshot.probabilities
    assert torch.allclose(mean.sum(1), torch.ones(120), atol=1e-5)
    assert 0.001 < (mean - once).abs().mean() < 0.1
    entropy = torch.special.entr(mean).sum(1)
    assert (entropy - snapshot.stochastic.expected_entropy > -1e-5).all(), "Jensen"
    model.train()
    model.backbone[1].eval()
    torch.manual_seed(0)
    with torch.no_grad():
        passes = torch.stack([model(Clouds().x).softmax(1) for _ in range(400)])
    assert torch.allclose(passes.mean(0), mean, atol=0.1)
    assert torch.allclose(torch.special.entr(passes).sum(2).mean(0), snapshot.stochastic.expected_entropy, atol=0.1)


def test_a_model_without_dropout_is_refused_with_where_the_paper_puts_it(tmp_path):
    model = Net()
    with pytest.raises(MisconfigurationException, match=r"no dropout layer\. The paper adds one after each hidden"):
        snapshot_of(tmp_path, model, needs=("stochastic",))
    assert not model.diary, "before anything is trained"


def test_dropout_layers_that_drop_nothing_are_none(tmp_path):
    model = Forgetful()
    model.backbone[-1].p = 0.0
    with pytest.raises(MisconfigurationException, match=r"no dropout layer that drops anything: p = 0 in all 1\. The"):
        snapshot_of(tmp_path, model, needs=("stochastic",))


def test_a_tensor_dataset_gives_the_batches_that_a_loader_would(tmp_path):
    clouds = Clouds()
    dataset = TensorDataset(clouds.x, clouds.targets, torch.arange(len(clouds)).float())
    indices = torch.randperm(len(clouds), generator=torch.Generator().manual_seed(0))[:50].tolist()
    ours = list(pool_loader(DataLoader(dataset, batch_size=4, shuffle=True), indices, 16))
    theirs = list(DataLoader(Subset(dataset, indices), batch_size=16))
    assert len(ours) == len(theirs) == 4
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other)
        for part, expected in zip(one, other, strict=True):
            torch.testing.assert_close(part, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("training", "pool"), [(1, 8), (8, 64), (20, 64), (64, 64), (100, 100)])
def test_small_batches_are_larger_without_gradients(training, pool):
    loader = pool_loader(DataLoader(Clouds(), batch_size=training), range(120), None)
    assert loader.batch_sampler.batch_size == pool


def test_embeddings_of_large_pools_are_kept_in_half_precision(monkeypatch):
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    for limit, dtype in ((23, torch.float16), (24, torch.float32)):
        monkeypatch.setattr("lightning_diffal.plugin.model.embedding.HALF_ABOVE", limit)
        rows = RowBuffer(3, world=2)
        rows.put("embeddings", values[:3])
        assert rows.parts["embeddings"].dtype == dtype
        assert torch.equal(rows.parts["embeddings"], values[:3].to(dtype))
    monkeypatch.setattr("lightning_diffal.plugin.model.embedding.HALF_ABOVE", 0)
    with pytest.raises(MisconfigurationException, match=r"values up to 1e\+05, beyond its range of 65,504"):
        RowBuffer(3).put("embeddings", torch.full((3, 4), 1e5))
