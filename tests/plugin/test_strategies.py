"""Strategies that take a model apart, or start its processes in their own way."""

import json
import os
from pathlib import Path

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from lightning_diffal import RandomSelector
from lightning_diffal.plugin.distributed.strategies import check_forward, check_rounds
from tests.plugin.rank_processes import run_ranks
from tests.plugin.test_multi_process import Shared
from tests.plugin.toy_model import Data, learner, quiet

pytestmark = pytest.mark.filterwarnings("ignore")


class OnTheCPU(FSDPStrategy):
    """FSDP1 where Lightning allows it on GPUs only: torch's wrapper itself works over gloo."""

    def _setup_model(self, model):
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **self.kwargs)


class Apart(Shared):
    def on_train_start(self):
        self.diary.append({"steps": 0, "drawn": []})
        self.recorded().recording, self.recorded().drawn = True, []
        assert next(self.parameters()).ndim == 1, "a shard of this rank"


def choices(folder):
    lines = (folder / "active_learning" / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["indices"] for line in lines]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    active = learner(budget=25)
    active.fit(quiet(folder, active, limit_val_batches=0), Shared(folder), datamodule=Data())
    return choices(folder)


@pytest.mark.parametrize("policy", [None, ModuleWrapPolicy({nn.Linear, nn.Sequential})], ids=["whole", "by layer"])
@pytest.mark.parametrize("layer", [None, "backbone.1"])
def test_fsdp1_one_round_at_a_time_chooses_as_one_process(tmp_path, policy, layer):
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()

    def rounds():
        for _ in range(3):
            active, strategy = learner(budget=25, layer=layer), OnTheCPU(auto_wrap_policy=policy)
            trainer = quiet(together, active, strategy=strategy, devices=2, limit_val_batches=0)
            trainer.fit(Apart(together), datamodule=Data())

    assert run_ranks(tmp_path, rounds) == [None, None]
    active = learner(budget=25, layer=layer)
    active.fit(quiet(alone, active, limit_val_batches=0), Shared(alone), datamodule=Data())
    assert choices(together) == choices(alone)


def test_fsdp1_is_refused_where_one_model_is_fitted_twice(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"FSDPStrategy \(FSDP1\) cannot fit a model twice.*FSDP2"):
        check_rounds(FSDPStrategy())
    active = learner()
    trainer = quiet(tmp_path, active, strategy=OnTheCPU(), devices=2)
    with pytest.raises(MisconfigurationException, match=r"trainer.fit with a new model each"):
        active.fit(trainer, Shared(tmp_path), datamodule=Data())


def test_deepspeed_is_refused_where_its_weights_are_partitioned():
    for stage, needs in [(3, frozenset()), (2, frozenset({"embeddings"})), (1, frozenset({"logits"}))]:
        check_forward(deepspeed(stage), needs)
    needed = frozenset({"logits", "embeddings"})
    with pytest.raises(MisconfigurationException, match=r"DeepSpeedStrategy\(stage=3\): .* embeddings and logits then"):
        check_forward(deepspeed(3), needed)
    assert not RandomSelector.needs


def deepspeed(stage):
    """Lightning's own, without its `__init__`, which asks for the package and a GPU."""
    strategy = object.__new__(DeepSpeedStrategy)
    strategy.config = {"zero_optimization": {"stage": stage}}
    return strategy


@pytest.mark.skipif("SLOW" not in os.environ, reason="six processes import Lightning, half a minute to two: SLOW=1")
def test_spawned_processes_with_a_function_that_makes_trainers(tmp_path, alone):
    active = learner(budget=25)

    def make():
        return quiet(tmp_path, active, strategy="ddp_spawn", devices=2, limit_val_batches=0)

    assert active.fit(make, Shared(tmp_path), datamodule=Data()).labels == [9, 17, 25]
    assert choices(tmp_path) == alone


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_one_trainer_that_can_fit_only_once_is_refused_at_the_start(tmp_path, strategy):
    active = learner()
    trainer = quiet(tmp_path, active, strategy=strategy, devices=2)
    with pytest.raises(MisconfigurationException, match=r"DDPStrategy .*one fit.*active.fit\(make_trainer, ...\)"):
        active.fit(trainer, Shared(tmp_path), datamodule=Data())
    assert not (tmp_path / "active_learning").exists()


CELLS = """
from pathlib import Path
from tests.plugin.test_strategies import Data, Shared, learner, quiet
folder = Path({folder!r})
active = learner(budget=25)

# %%
def make_trainer():
    return quiet(folder, active, strategy="ddp_notebook", devices=2, limit_val_batches=0)

history = active.fit(make_trainer, Shared(folder), datamodule=Data())

# %%
assert history.labels == [9, 17, 25], history.labels
"""


def test_in_the_cells_of_a_notebook(tmp_path, alone):
    manager = pytest.importorskip("jupyter_client.manager", reason="ipykernel, of the dev extra, is not installed")
    root = str(Path(__file__).parents[2])
    kernel, client = manager.start_new_kernel(cwd=root, env=os.environ | {"PYTHONPATH": root})
    try:
        for cell in CELLS.format(folder=str(tmp_path)).split("# %%"):
            reply = client.execute_interactive(cell, timeout=120, output_hook=lambda message: None)["content"]
            assert reply["status"] == "ok", "\n".join(reply["traceback"])
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert choices(tmp_path) == alone
