"""All rounds from the command line, or one for each call with an exit code that says whether the run is over."""

import json
from pathlib import Path

import lightning.pytorch.cli
import pytest
import pytorch_lightning.cli
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal.plugin.cli import RUN_IS_OVER, ActiveLearningCLI, with_active_fit
from tests.forked_script import run_script
from tests.plugin.fresh_fit import TracedNet

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:LightningCLI's args parameter")

CONFIG = """
seed_everything: 1
model: {{class_path: tests.plugin.{model}}}
data: {{class_path: tests.plugin.{data}}}
trainer:
  accelerator: cpu
  max_epochs: 2
  default_root_dir: {root}
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  num_sanity_val_steps: 0
  callbacks:
    - class_path: lightning_diffal.DiffusionActiveLearning
      init_args: {{query_size: 8, budget: {budget}, initial: 9, neighbors: 5}}
"""
OURS = {"model": "toy_model.Net", "data": "toy_model.Data"}


def config(tmp_path, budget=25, **names):
    path = tmp_path / "config.yaml.in"  # LightningCLI saves its own config.yaml
    path.write_text(CONFIG.format(root=tmp_path, budget=budget, **OURS | names))
    return str(path)


def labeled(tmp_path):
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["labeled"] for line in lines]


def test_active_fit_runs_all_rounds(tmp_path):
    features = ["--trainer.callbacks.features=inputs", "--trainer.callbacks.feature_dim=null"]
    cli = ActiveLearningCLI(args=["active-fit", "--config", config(tmp_path), *features])
    assert cli.trainer.callbacks[0].config.features == "inputs"
    assert labeled(tmp_path) == [0, 9, 17, 25]
    assert cli.exit_code == 0
    assert len(cli.model.diary) == 3


def test_fit_is_one_round_and_says_by_its_exit_code_when_the_run_is_over(tmp_path):
    codes = [ActiveLearningCLI(args=["fit", "--config", config(tmp_path)]).exit_code for _ in range(4)]
    assert codes == [0, 0, RUN_IS_OVER, RUN_IS_OVER]
    assert RUN_IS_OVER not in {0, 1, 2}, "success, an exception, a mistake in the arguments"
    assert labeled(tmp_path) == [0, 9, 17, 25], "the fourth call did nothing"


def test_one_way_goes_on_where_the_other_has_stopped(tmp_path):
    ActiveLearningCLI(args=["fit", "--config", config(tmp_path)])
    ActiveLearningCLI(args=["active-fit", "--config", config(tmp_path)])
    assert labeled(tmp_path) == [0, 9, 17, 25]
    assert ActiveLearningCLI(args=["fit", "--config", config(tmp_path, budget=33)]).exit_code == 0
    assert labeled(tmp_path) == [0, 9, 17, 25, 25]


def test_from_a_shell(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nfrom lightning_diffal.plugin.cli import ActiveLearningCLI\n\n"
        'if __name__ == "__main__":\n    sys.exit(ActiveLearningCLI().exit_code)\n'
    )

    def call(command):
        return run_script(script, command, "--config", config(tmp_path, budget=17))

    ended = call("active-fit")
    assert ended.returncode == 0, ended.stderr
    assert labeled(tmp_path) == [0, 9, 17]
    ended = call("fit")
    assert ended.returncode == RUN_IS_OVER, ended.stderr
    assert "Nothing is trained" in ended.stderr + ended.stdout


def test_optimizers_made_by_the_command_line_start_over(tmp_path):
    class Traced(with_active_fit(lightning.pytorch.cli.LightningCLI)):
        """A command line of one's own."""

    optimizer = ["--optimizer=Adam", "--optimizer.lr=0.05", "--lr_scheduler=StepLR", "--lr_scheduler.step_size=1"]
    with pytest.warns(UserWarning, match="configure_optimizers` will be overridden"):
        cli = Traced(TracedNet, args=["active-fit", "--config", config_without_model(tmp_path), *optimizer])
    assert [(fit["lr"], fit["momenta"]) for fit in cli.model.diary] == [(0.05, 0)] * 3


def config_without_model(tmp_path):
    path = Path(config(tmp_path))
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("model")))
    return str(path)


def test_the_other_namespace(tmp_path):
    names = {"model": "test_trainers.OldNet", "data": "test_trainers.OldData"}
    cli = with_active_fit(pytorch_lightning.cli.LightningCLI)
    assert cli(args=["active-fit", "--config", config(tmp_path, budget=17, **names)]).exit_code == 0
    assert labeled(tmp_path) == [0, 9, 17]


def test_without_the_callback_it_says_what_to_write(tmp_path):
    path = Path(config(tmp_path))
    path.write_text(path.read_text().split("  callbacks:")[0])
    with pytest.raises(MisconfigurationException, match=r"active-fit: .*no ActiveLearning.*callbacks.*class_path"):
        ActiveLearningCLI(args=["active-fit", "--config", str(path)])


def test_a_function_instead_of_a_trainer_class_is_refused(tmp_path):
    def make(max_epochs: int = 1) -> lightning.pytorch.Trainer:
        return lightning.pytorch.Trainer(max_epochs=max_epochs)

    with pytest.raises(ValueError, match=r"trainer_class=.*make.*: .*a subclass of Trainer is needed"):
        ActiveLearningCLI(trainer_class=make, args=["active-fit", "--config", config(tmp_path)])
