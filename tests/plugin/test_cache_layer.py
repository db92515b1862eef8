"""cache_layer=...: a frozen layer runs once for each point, and what it gave is never stale."""

import json
import os
from itertools import pairwise

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import TensorDataset

from lightning_diffal import ActiveLearning
from lightning_diffal.plugin.model.input_checksum import input_checksums
from lightning_diffal.plugin.model.layer_cache import LayerCache
from lightning_diffal.selectors import EntropySelector
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore")
BATCHES = 15  # of 8, in a pool of 120
QUERIES = 3


class Counted(nn.Sequential):
    """Counts its calls in eval mode."""

    calls = 0

    def forward(self, x):
        self.calls += not self.training
        return super().forward(x)


class Frozen(Net):
    """A backbone that is not trained; notes how often it ran before each fit."""

    def __init__(self, **options):
        super().__init__(**options)
        self.backbone = Counted(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16))
        self.backbone.requires_grad_(False)
        self.calls = []

    def on_train_start(self):
        super().on_train_start()
        self.calls.append(self.backbone.calls)


def run(folder, model=None, data=None, **options):
    """Calls of the backbone in each query, the points chosen, and the callback."""
    model, active = model or Frozen(), learner(pool_batch_size=8, **options)
    history = active.fit(quiet(folder, active, limit_val_batches=0), model, datamodule=data or Data())
    calls = [*model.calls, model.backbone.calls]
    by_query = [after - before for before, after in pairwise(calls)]
    return by_query[:QUERIES], [record.indices for record in history.records], active


@pytest.mark.parametrize("options", [{}, {"soft_start": True}, {"layer": "backbone"}])
def test_the_choices_are_the_same_and_the_layer_runs_in_the_first_round_only(tmp_path, options):
    calls, without, _ = run(tmp_path / "a", **options)
    assert calls == [BATCHES] * QUERIES
    calls, cached, active = run(tmp_path / "b", cache_layer="backbone", **options)
    assert calls == [BATCHES, 0, 0]
    assert cached == without
    assert active.layer_cache.store.in_memory == 120 * 16 * 4


def test_what_does_not_fit_into_memory_goes_to_a_file(tmp_path):
    cache = LayerCache("backbone", 120, tmp_path, memory=20 * 16 * 4)
    model, values = Frozen(), Clouds().x
    expected = model.backbone(values)

    def embedded():
        with cache.attach(model, "32", range(120)) as served:
            parts = []
            for start in range(0, 120, 10):
                served.begin_batch(start, 10)
                parts.append(model.backbone(values[start : start + 10]))
                parts[-1] = parts[-1].clone()
                model.backbone(values[start : start + 10]).zero_()  # what a later layer does in place
            return torch.cat(parts)

    assert torch.allclose(embedded(), expected)
    assert torch.equal(embedded(), embedded())
    assert (cache.store.in_memory, cache.store.in_file) == (20 * 16 * 4, 100 * 16 * 4)
    assert "forward" not in vars(model.backbone)


class Thaws(Frozen):
    """Its backbone changes in the second fit, behind the back of the optimizer."""

    def on_train_end(self):
        super().on_train_end()
        if len(self.diary) == 2:
            with torch.no_grad():
                self.backbone[2].weight[1:] = 0


def test_changed_weights_are_noticed(tmp_path):
    without = run(tmp_path / "a", Thaws())[1]
    with pytest.warns(UserWarning, match=r"cache_layer='backbone': 2.weight of the layer changed since its output"):
        calls, cached, _ = run(tmp_path / "b", Thaws(), cache_layer="backbone")
    assert cached == without
    assert without != run(tmp_path / "c")[1], "else nothing was shown"
    assert calls == [BATCHES, BATCHES, BATCHES], "changed in the second round, and back to the start in the third"


class WithNorm(Frozen):
    def __init__(self):
        super().__init__()
        self.backbone.append(nn.BatchNorm1d(16).requires_grad_(False))


def test_statistics_of_batch_norm_are_noticed(tmp_path):
    without = run(tmp_path / "a", WithNorm())[1]
    with pytest.warns(UserWarning, match=r"3.running_mean.*BatchNorm in training mode changes its statistics"):
        calls, cached, _ = run(tmp_path / "b", WithNorm(), cache_layer="backbone")
    assert cached == without
    assert calls == [BATCHES] * QUERIES


class Trained(Frozen):
    """A layer before the frozen one is trained, so that the input of the frozen one changes."""

    def __init__(self):
        super().__init__(lr=0.1)
        self.first = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.backbone(self.first(x)))


def test_a_changed_input_is_noticed(tmp_path):
    without = run(tmp_path / "a", Trained())[1]
    with pytest.warns(UserWarning, match="the input of the layer changed for point 0"):
        calls, cached, _ = run(tmp_path / "b", Trained(), cache_layer="backbone")
    assert cached == without
    assert calls == [BATCHES] * QUERIES


def test_points_that_were_not_among_the_candidates_before_are_added(tmp_path):
    without = run(tmp_path / "a", candidates=60, budget=33)[1]
    calls, cached, active = run(tmp_path / "b", candidates=60, cache_layer="backbone")
    assert cached == without
    seen = int((active.layer_cache.block >= 0).sum())
    assert sum(calls) < seen / 8 + 3 * QUERIES, "batches of points that were seen before are not run again"


def test_every_rank_keeps_its_share(tmp_path):
    for name, options in {"without": {}, "cached": {"cache_layer": "backbone"}}.items():
        (tmp_path / name).mkdir()

        def fit(folder=tmp_path / name, options=options):
            model, active = Frozen(lr=0.0), learner(pool_batch_size=8, **options)
            active.fit(quiet(folder, active, strategy="ddp", devices=2, limit_val_batches=0), model, datamodule=Data())
            (folder / f"calls-{os.environ['RANK']}").write_text(json.dumps([*model.calls, model.backbone.calls]))

        assert run_ranks(tmp_path, fit) == [None, None]
    for rank in range(2):
        first, *others = json.loads((tmp_path / "cached" / f"calls-{rank}").read_text())
        assert [calls - first for calls in others[:QUERIES]] == [8, 8, 8], "60 points in batches of 8, once"
    lines = [
        [json.loads(line)["indices"] for line in (tmp_path / name / "active_learning" / "rounds.jsonl").open()]
        for name in ("without", "cached")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("form", ["wrapped", "in place"])
def test_compiled_layers_are_served_too(tmp_path, form):
    model = Frozen()
    if form == "wrapped":
        inner = model.backbone
        model.backbone = torch.compile(inner, backend="eager")
    else:
        model.backbone.compile(backend="eager")
    calls, cached, _ = run(tmp_path / "b", model, cache_layer="backbone")
    assert calls[1:] == [0, 0]
    assert cached == run(tmp_path / "a")[1]


class Dropped(Frozen):
    def __init__(self, inside):
        super().__init__()
        dropout = nn.Dropout(0.5)
        self.dropout = nn.Identity() if inside else dropout
        if inside:
            self.backbone.append(dropout)

    def forward(self, x):
        return self.head(self.dropout(self.backbone(x)))


def entropy(folder, model, **options):
    active = ActiveLearning(8, 33, initial=9, selector=EntropySelector(passes=5), **options)
    history = active.fit(quiet(folder, active, limit_val_batches=0), model, datamodule=Data())
    return [record.indices for record in history.records]


def test_passes_with_dropout_behind_the_layer(tmp_path):
    model = Dropped(inside=False)
    assert entropy(tmp_path / "b", model, cache_layer="backbone") == entropy(tmp_path / "a", Dropped(inside=False))
    calls = [*model.calls, model.backbone.calls]
    assert calls[2] == calls[3] == calls[4]


def test_dropout_inside_is_refused_for_passes_with_dropout(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"has dropout inside \(3\)"):
        entropy(tmp_path, Dropped(inside=True), cache_layer="backbone")


class Pair(Frozen):
    """Its backbone returns a tuple."""

    def __init__(self):
        super().__init__()
        self.inner = self.backbone
        self.backbone = Tuple(self.inner)

    def forward(self, x):
        return self.head(self.backbone(x)[0])


class Tuple(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return (self.inner(x), x)


class Views(Frozen):
    def forward(self, x):
        return self.head(self.backbone(x) + self.backbone(x.flip(0)))


class Pooled(Frozen):
    """Its backbone gives one row for the whole batch."""

    def forward(self, x):
        return self.head(self.context(x) + self.backbone(x))

    def __init__(self):
        super().__init__()
        self.context = Mean()


class Mean(nn.Module):
    def forward(self, x):
        return x.mean().expand(1, 16)


class Noisy(Frozen):
    def __init__(self):
        super().__init__()
        self.backbone.append(Noise())


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Whole(Frozen):
    """The classifier is part of what is cached."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(self.backbone, nn.Linear(16, 3)).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * self.net(x)


def unfrozen():
    model = Frozen()
    model.backbone[0].requires_grad_(True)
    return model


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Frozen, {"cache_layer": "bakbone"}, r"cache_layer='bakbone': the model has no such submodule.*backbone, head"),
        (unfrozen, {}, r"2 of its parameters are trained \(0.weight, 0.bias\).*backbone.requires_grad_\(False\)"),
        (Frozen, {"layer": "backbone.0"}, r"layer='backbone.0': the embedding is computed inside the layer"),
        (Pair, {}, r"the layer gave a tuple of \(Tensor, Tensor\) for a batch of 8 points"),
        (Pooled, {"cache_layer": "context"}, r"the layer gave Tensor of shape \(1, 16\).* for a batch of 8 points"),
        (Views, {}, "calls it several times with different inputs"),
        (Noisy, {}, "run twice on one batch in eval mode it gave different results"),
        (Whole, {"cache_layer": "net"}, "Name a layer that ends before the embedding"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_any_fit(tmp_path, model, options, message):
    model = model()
    with pytest.raises(MisconfigurationException, match=message):
        run(tmp_path, model, **{"cache_layer": "backbone"} | options)
    assert not model.diary


def test_random_items_are_refused(tmp_path):
    class Random(Clouds):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + torch.randn(2), y

    with pytest.raises(MisconfigurationException, match=r"gives other items each time.*pool="):
        run(tmp_path, data=Data(Random()), cache_layer="backbone")
    clouds = Clouds()
    calls, *_ = run(tmp_path, data=Data(Random()), cache_layer="backbone", pool=TensorDataset(clouds.x, clouds.targets))
    assert calls == [BATCHES, 0, 0]


def test_checksums_tell_inputs_apart():
    generator = torch.Generator().manual_seed(0)
    x, mask = torch.randn(6, 3, 5, generator=generator), torch.ones(6, 4, dtype=torch.bool)

    def checksums(x=x, mask=mask, **keywords):
        return input_checksums(((x,), {"mask": mask, "flag": True} | keywords), 6, "here")

    assert torch.equal(checksums(), checksums(x.clone(memory_format=torch.preserve_format)))
    assert len(set(checksums().tolist())) == 6
    changed = x.clone()
    changed[2, 1, 1] += 1e-6
    assert (checksums(changed) != checksums()).tolist() == [False, False, True, False, False, False]
    swapped = x.clone()
    swapped[:, 0], swapped[:, 1] = x[:, 1], x[:, 0]
    for other in (checksums(swapped), checksums(x.half()), checksums(flag=False), checksums(x.reshape(6, 5, 3))):
        assert not (other == checksums()).any()
    assert not (checksums(table=torch.zeros(2)) == checksums(table=torch.ones(2))).any(), "shared by all points"
    with pytest.raises(MisconfigurationException, match="cannot be compared"):
        checksums(other=object())
