"""Both namespaces, the command line, and every kind of Trainer."""

import inspect
import json
import re
import sys

import lightning as L  # noqa: N812
import pytest
import pytorch_lightning
import torch
from hydra.utils import instantiate
from jsonargparse import ArgumentParser
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.tuner import Tuner
from omegaconf import OmegaConf
from torch.utils.data import DataLoader

import lightning_diffal
from lightning_diffal import ActiveLearning, DiffusionActiveLearning, PerClass
from tests.forked_script import run_script
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet


class OldNet(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.steps = []
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    def forward(self, x):
        return self.net(x)

    def on_train_start(self):
        self.steps.append(0)

    def training_step(self, batch, batch_idx):
        self.steps[-1] += 1
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def lowest(snapshot, size):
    return snapshot.unlabeled[:size]


class OldData(pytorch_lightning.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Clouds(), batch_size=8, shuffle=True)


def test_the_other_namespace(tmp_path):
    active, model = learner(), OldNet()
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        default_root_dir=tmp_path,
        callbacks=[active],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    history = active.fit(trainer, model, datamodule=OldData())
    assert history.labels == [9, 17, 25, 33]
    assert model.steps == [2, 4, 6, 8]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{class_path: lightning_diffal.selectors.MarginSelector, init_args: {passes: 3}}", "MarginSelector(passes=3)"),
        ("tests.plugin.test_trainers.lowest", "lowest"),
    ],
)
def test_the_command_line_makes_a_selector_from_yaml(tmp_path, monkeypatch, given, expected):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
        seed_everything: 1
        model: {{class_path: tests.plugin.toy_model.Net}}
        data: {{class_path: tests.plugin.toy_model.Data}}
        trainer:
          accelerator: cpu
          logger: false
          callbacks:
            - class_path: lightning_diffal.ActiveLearning
              init_args:
                query_size: 8
                budget: 25
                initial: [1, 2]
                oracle: tests.plugin.kill_and_resume.paid
                selector: {given}
        """
    )
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", str(config)])
    cli = LightningCLI(save_config_callback=None, run=False)
    active = next(callback for callback in cli.trainer.callbacks if isinstance(callback, ActiveLearning))
    assert expected in active.config.selector_name
    assert active.config.initial == [1, 2]
    assert active.config.oracle.__name__ == "paid"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_command_line_reads_the_callback_from_yaml(tmp_path, monkeypatch):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
        seed_everything: 1
        model: {{class_path: tests.plugin.toy_model.Net}}
        data: {{class_path: tests.plugin.toy_model.Data, init_args: {{batch_size: 4}}}}
        trainer:
          accelerator: cpu
          max_epochs: 1
          default_root_dir: {tmp_path}
          logger: false
          enable_checkpointing: false
          enable_progress_bar: false
          callbacks:
            - class_path: lightning_diffal.DiffusionActiveLearning
              init_args:
                query_size: 8
                budget: 25
                neighbors: 5
                layer: backbone
                seed: 3
                initial: {{class_path: lightning_diffal.PerClass, init_args: {{count: 3}}}}
        """
    )
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", str(config)])
    cli = LightningCLI(save_config_callback=None, run=False)
    active = next(callback for callback in cli.trainer.callbacks if isinstance(callback, DiffusionActiveLearning))
    assert active.config.initial == PerClass(3)
    assert (active.config.layer, active.config.seed) == ("backbone", 3)
    assert active.fit(cli.trainer, cli.model, datamodule=cli.datamodule).labels == [9, 17, 25]


DIFFUSION = {"mini_batch", "neighbors", "steps", "soft_start", "shrink_below", "backend"}


@pytest.mark.parametrize("callback", [ActiveLearning, DiffusionActiveLearning])
def test_the_command_line_knows_every_argument(callback):
    parser = ArgumentParser()
    parser.add_class_arguments(callback, "active")
    listed = set(re.findall(r"--active\.(\w+)", parser.format_help()))
    common = set(inspect.signature(ActiveLearning).parameters) - {"selector"}
    assert {"layer", "oracle", "folder", "seed", "initial"} < common
    assert listed & (common | DIFFUSION | {"selector"}) == common | (
        {"selector"} if callback is ActiveLearning else DIFFUSION
    )


def test_arguments_that_nobody_takes_are_refused_by_name():
    with pytest.raises(TypeError, match="'neighbours'"):
        DiffusionActiveLearning(8, 33, neighbours=5)
    with pytest.raises(TypeError, match=r"selector=.*ActiveLearning takes any selector"):
        DiffusionActiveLearning(8, 33, selector=lowest)


@pytest.mark.parametrize("namespace", ["lightning.pytorch.cli", "pytorch_lightning.cli"])
def test_the_command_line_of_a_shell(tmp_path, namespace):
    names = ("Net", "Data") if namespace.startswith("lightning") else ("OldNet", "OldData")
    place = "tests.plugin.toy_model" if names[0] == "Net" else "tests.plugin.test_trainers"
    script = tmp_path / "train.py"
    script.write_text(f"from {namespace} import LightningCLI\nLightningCLI()")
    command = [
        *("fit", f"--model={place}.{names[0]}", f"--data={place}.{names[1]}"),
        *("--trainer.accelerator=cpu", "--trainer.max_epochs=1", f"--trainer.default_root_dir={tmp_path}"),
        "--trainer.enable_progress_bar=false",
        "--trainer.callbacks+=lightning_diffal.DiffusionActiveLearning",
        *("--trainer.callbacks.query_size=8", "--trainer.callbacks.budget=25", "--trainer.callbacks.initial=9"),
    ]
    ended = run_script(script, *command, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["indices"]) for line in lines] == [9, 8]


def test_hydra_instantiates_it(tmp_path):
    config = OmegaConf.create(
        {
            "_target_": "lightning_diffal.DiffusionActiveLearning",
            "query_size": 8,
            "budget": 17,
            "initial": [1, 2, 3, 4, 5, 6, 7, 8, 9],
            "neighbors": 5,
        }
    )
    active = instantiate(config)
    assert active.config.initial == list(range(1, 10))
    assert active.fit(quiet(tmp_path, active), Net(), datamodule=Data()).labels == [9, 17]


@pytest.mark.parametrize("start", ["by hand", "active.fit"])
def test_fast_dev_run_asks_nothing_and_writes_nothing(tmp_path, start, monkeypatch):
    monkeypatch.chdir(tmp_path)
    active, model, data = learner(), Net(), Data()
    trainer = quiet(tmp_path, active, fast_dev_run=True)
    if start == "by hand":
        trainer.fit(model, datamodule=data)
    else:
        assert len(active.fit(trainer, model, datamodule=data)) == 0
    assert len(model.diary) == model.diary[0]["steps"] == 1
    assert set(model.diary[0]["drawn"][0]) <= set(active.state.pool.labeled.tolist())
    assert len(active.state.pool.labeled) == 9
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*barebones")
def test_barebones(tmp_path):
    active, model = learner(), Net()
    options = {"accelerator": "cpu", "max_epochs": 2, "default_root_dir": tmp_path, "callbacks": [active]}
    history = active.fit(L.Trainer(barebones=True, **options), model, datamodule=Data())
    assert history.labels == [9, 17, 25, 33]
    assert all(fit["steps"] for fit in model.diary)


@pytest.mark.filterwarnings("ignore")
def test_the_tuner_trains_on_labeled_points_only_and_asks_nothing(tmp_path):
    active, model, data = learner(), Net(), Data(batch_size=2)
    trainer = quiet(tmp_path, active)
    Tuner(trainer).lr_find(model, datamodule=data, num_training=8)
    Tuner(trainer).scale_batch_size(model, datamodule=data, max_trials=2, steps_per_trial=2)
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    labeled = set(json.loads(lines[0])["indices"])
    assert len(lines) == 1
    drawn = {index for fit in model.diary for epoch in fit["drawn"] for index in epoch} | set(data.dataset.drawn)
    assert drawn
    assert drawn <= labeled
    assert "train_dataloader" not in vars(data)
    data.batch_size = 8
    assert active.fit(quiet(tmp_path, active), model, datamodule=data).labels == [9, 17, 25, 33]


def test_validate_and_test_are_left_alone(tmp_path):
    active, model, data = learner(), Net(), Data()
    trainer = quiet(tmp_path, active)
    trainer.validate(model, datamodule=data, verbose=False)
    trainer.predict(model, DataLoader(Clouds().x, batch_size=8), return_predictions=False)
    assert not list(tmp_path.iterdir())


def test_the_callback_must_be_on_the_trainer(tmp_path):
    active = learner()
    with pytest.raises(Exception, match=r"not among the Trainer's callbacks. Trainer\(callbacks=\[active\]\) adds it"):
        active.fit(quiet(tmp_path, learner()), Net(), datamodule=Data())
    with pytest.raises(Exception, match=r"a Trainer is needed, or a function that makes one"):
        active.fit(7, Net(), datamodule=Data())


def test_names_that_need_lightning_come_with_the_others():
    assert lightning_diffal.ActiveLearning.__name__ == "ActiveLearning"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = lightning_diffal.Nonsense
