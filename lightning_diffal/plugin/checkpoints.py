"""Where a round starts from, on the disk."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException


class Checkpoints:
    """Checkpoints of the untrained state, which every round starts over from, and of what the last round came to.

    `fit(ckpt_path=...)` is the public way to start over on one Trainer: it resets weights, epoch, step, optimizers,
    schedulers, EarlyStopping and ModelCheckpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.untrained = folder, folder / "untrained.ckpt"
        self.fresh = False
        """Whether the fit under way starts from the user's model, and its state is yet to be kept."""
        self.saving = False

    def trained(self, round_number: int) -> Path:
        return self.folder / f"trained-{round_number}.ckpt"

    def start_of(self, round_number: int, warm: bool) -> Path | None:
        """The checkpoint a round starts from; None the first time, when there is the user's model itself."""
        carried = warm and round_number > 1
        path = self.trained(round_number - 1) if carried else self.untrained
        if carried and not path.exists():
            raise MisconfigurationException(
                f"warm_start=True: {path} is not there, the weights that round {round_number} starts from. It was "
                "removed, or the rounds before were not run by active.fit with warm_start=True. Put it back, or go on "
                "with warm_start=False, from the untrained model."
            )
        self.fresh = round_number == 0 or not path.exists()
        return None if self.fresh else path

    def start(self, trainer: Any, warm: bool) -> None:
        """A round begins to train: keep the state it starts from, if none is kept yet."""
        for callback in trainer.checkpoint_callbacks:
            # ModelCheckpoint skips a step that it has saved last, and its state does not say that this was another
            # round's. There is no public way to tell it; a test counts the checkpoints of each round.
            if hasattr(callback, "_last_global_step_saved"):
                callback._last_global_step_saved = 0
        self.keep_untrained(trainer)
        if warm and self.untrained.is_dir():
            raise MisconfigurationException(
                f"warm_start=True: {type(trainer.strategy).__name__} shards its checkpoints; the weights of one round "
                "cannot be carried over to the next. warm_start=False starts each from the untrained model."
            )

    def keep_untrained(self, trainer: Any) -> None:
        if not self.fresh:
            return
        self.fresh, self.saving = False, True
        half = self.untrained.with_suffix(".tmp")
        trainer.save_checkpoint(half)
        self.saving = False
        if trainer.is_global_zero:
            if self.untrained.is_dir():  # of a run whose ledger was removed; sharded checkpoints are folders
                shutil.rmtree(self.untrained)
            os.replace(half, self.untrained)  # noqa: PTH105, never half there
        trainer.strategy.barrier()

    def on_save(self, checkpoint: dict[str, Any]) -> None:
        """Let ModelCheckpoint forget what it had saved, also where it writes to another folder by now."""
        if self.saving:
            for state in checkpoint["callbacks"].values():
                state.pop("dirpath", None)

    def keep_trained(self, trainer: Any, module: Any, round_number: int) -> None:
        """The untrained state with the weights of this round, before the ledger says that it is over.

        Not for models whose weights are sharded: their checkpoints are folders, which no single rank can write.
        """
        if trainer.is_global_zero and not self.untrained.is_dir():
            # Our own file, and users' hyperparameters may be of any type.
            checkpoint = torch.load(self.untrained, map_location="cpu", weights_only=False)
            checkpoint["state_dict"] = {name: value.cpu() for name, value in module.state_dict().items()}
            half = self.trained(round_number).with_suffix(".tmp")
            torch.save(checkpoint, half)
            os.replace(half, self.trained(round_number))  # noqa: PTH105, never half there
            for old in self.folder.glob("trained-*.ckpt"):
                if int(old.stem.removeprefix("trained-")) < round_number - 1:
                    old.unlink()
        trainer.strategy.barrier()
