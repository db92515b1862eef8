"""The place from which Lightning gets the training loaders of a fit."""

from collections.abc import Callable
from typing import Any

MISSING = object()


class TrainingSource:
    """The method that gives a fit its training loaders: the DataModule's, the module's, or one around loaders passed.

    `replace` puts another function there for the duration of a fit, `restore` removes it.
    """

    def __init__(self, trainer: Any) -> None:
        # No public attribute says where the loaders come from, nor holds those passed to `fit`.
        source = trainer.fit_loop._data_source
        from_hook = source.instance is trainer.datamodule or source.instance is trainer.lightning_module
        self.owner, self.name = (source.instance, "train_dataloader") if from_hook else (source, "dataloader")
        self.before = vars(self.owner).get(self.name, MISSING)
        self.loaders: Callable[[], Any] = getattr(self.owner, self.name)

    def replace(self, function: Callable[[], Any]) -> None:
        vars(self.owner)[self.name] = function

    def restore(self) -> None:
        if self.before is MISSING:
            vars(self.owner).pop(self.name, None)
        else:
            vars(self.owner)[self.name] = self.before
