"""LightningCLI with all rounds in one command, or one in each with an exit code that says whether the run is over.

    # train.py
    import sys
    from lightning_diffal.plugin.cli import ActiveLearningCLI

    if __name__ == "__main__":
        sys.exit(ActiveLearningCLI().exit_code)

`python train.py active-fit --config config.yaml` runs all rounds. `python train.py fit --config config.yaml` runs one,
as with any LightningCLI; here it ends with exit code 3 once the run is over, so that a shell can go on until then:

    while python train.py fit --config config.yaml; do :; done
"""

from typing import Any, Final

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningCLI

from lightning_diffal.labeling.commands import WAITING
from lightning_diffal.plugin.callback import ActiveLearning
from lightning_diffal.plugin.rounds import is_over
from lightning_diffal.pool.history import History

RUN_IS_OVER: Final = 3
"""The exit code of `fit` when there is no round left. 1 is an exception, 2 a mistake in the arguments, and WAITING (4)
a run that people have to answer first."""
COMMAND: Final = "active-fit"


def with_active_fit(cli_class: Any) -> Any:
    """A LightningCLI, of either namespace or a subclass of one's own, with `active-fit` beside `fit` and the others."""

    class CLI(cli_class):  # type: ignore[misc]
        trainer_class: Any
        save_config_kwargs: dict[str, Any]

        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            commands: dict[str, set[str]] = cli_class.subcommands()
            return {**commands, COMMAND: {"model", "train_dataloaders", "val_dataloaders", "datamodule"}}

        def setup_parser(self, *arguments: Any, **options: Any) -> None:
            self.trainer_class = trainer_with_active_fit(self.trainer_class)
            # A run has many calls, and each would refuse to write the same config.yaml again.
            self.save_config_kwargs = {"overwrite": True, **self.save_config_kwargs}
            super().setup_parser(*arguments, **options)

        @property
        def exit_code(self) -> int:
            """0, RUN_IS_OVER after a `fit` that left no round to do, or WAITING if people have to answer first."""
            active = callback_of(self.trainer)
            records = active.history.records if active is not None else []
            if active is not None and active.history.waiting is not None:
                return WAITING
            return RUN_IS_OVER if self.subcommand == "fit" and active and is_over(active.config, records) else 0

    CLI.__name__ = CLI.__qualname__ = cli_class.__name__
    return CLI


ActiveLearningCLI = with_active_fit(LightningCLI)


def trainer_with_active_fit(trainer_class: Any) -> Any:
    """The Trainer of a command line: LightningCLI takes commands from its methods, by name."""
    if not isinstance(trainer_class, type):
        raise ValueError(f"trainer_class={trainer_class!r}: for {COMMAND} a subclass of Trainer is needed.")
    names = {COMMAND: active_fit, "__module__": trainer_class.__module__, "__doc__": trainer_class.__doc__}
    return type(trainer_class.__name__, (trainer_class,), names)


def active_fit(
    self: Any, model: Any, train_dataloaders: Any = None, val_dataloaders: Any = None, datamodule: Any = None
) -> History:
    """Fit, query and fit again until the budget of labels is spent."""
    active = callback_of(self)
    if active is None:
        raise MisconfigurationException(
            f"{COMMAND}: there is no ActiveLearning among the Trainer's callbacks. Add one to trainer.callbacks of the "
            "config: {class_path: lightning_diffal.DiffusionActiveLearning, init_args: {query_size: 20, budget: 100}}."
        )
    return active.fit(self, model, train_dataloaders, val_dataloaders, datamodule)


def callback_of(trainer: Any) -> ActiveLearning | None:
    return next((callback for callback in trainer.callbacks if isinstance(callback, ActiveLearning)), None)
