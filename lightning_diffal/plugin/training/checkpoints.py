"""The checkpoints that rounds start from."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn

from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.distributed.strategies import loads_optimizers
from lightning_diffal.plugin.model.batches import overrides
from lightning_diffal.plugin.training.checkpoint_files import DamagedCheckpointError, check_types, load_checkpoint
from lightning_diffal.plugin.training.same_model import check_same_model
from lightning_diffal.pool.folder.files import replace_durably, write_atomically


@dataclass(frozen=True)
class RoundStart:
    """The next round, and the checkpoint it starts from; None is the user's model, whose state is to be saved.

    By name, not by path: nodes may have mounted the folder in different places.
    """

    round: int
    checkpoint: str | None


class RoundCheckpoints:
    """Checkpoints of the untrained weights, which every round starts from, and of the last trained ones.

    They hold what makes up the model (weights, and what users add in `on_save_checkpoint`), and nothing of
    the training: `fit(ckpt_path=...)` leaves optimizers and schedulers as `configure_optimizers` has just made them for
    the labels of the round. `FreshStart` does the rest.
    """

    def __init__(self, folder: Path, weights_only: bool = True) -> None:
        self.folder, self.untrained, self.weights_only = folder, folder / "untrained.ckpt", weights_only
        self.start = RoundStart(0, None)
        """Of the round under way, as rank 0 found the folder."""
        self.saving_untrained = False

    @property
    def start_path(self) -> Path | None:
        return self.folder / self.start.checkpoint if self.start.checkpoint is not None else None

    def trained(self, round_number: int) -> Path:
        return self.folder / f"trained-{round_number}.ckpt"

    def start_of(self, round_number: int, warm_start: bool) -> RoundStart:
        """Where a round starts from: a checkpoint, or the user's model itself the first time."""
        if warm_start and round_number > 1:
            path = self.trained(round_number - 1)
            instead = (
                "Put a copy of it there, or continue with warm_start=False, from the untrained model; the labels are "
                "all there."
            )
            if not path.exists():
                raise MisconfigurationException(
                    f"warm_start=True: {path} is not there, the weights that round {round_number} starts from. It was "
                    f"removed, or the rounds before were not run by active.fit with warm_start=True. {instead}"
                )
            try:
                self.load(path)
            except DamagedCheckpointError as error:
                raise MisconfigurationException(f"warm_start=True: {error} {instead}") from error
            return RoundStart(round_number, path.name)
        if round_number == 0 or not self.untrained.exists():
            return RoundStart(round_number, None)
        try:
            self.load(self.untrained)
        except DamagedCheckpointError as error:
            rank_zero_warn(
                f"{error} This round starts from the model as it was passed to fit, and saves that as the new "
                "untrained state. If the script builds its model by seed, it is the same."
            )
            return RoundStart(round_number, None)
        return RoundStart(round_number, self.untrained.name)

    def load(self, path: Path) -> Any:
        return load_checkpoint(path, self.weights_only)

    def load_weights(self, path: Path, model: Any) -> None:
        """Load weights into a model outside of a fit, as Lightning does within."""
        if not path.is_file():
            return
        checkpoint = self.load(path)
        model = getattr(model, "_orig_mod", model)
        if overrides(model, "on_load_checkpoint"):
            model.on_load_checkpoint(checkpoint)
        else:
            check_same_model(model, checkpoint["state_dict"], self.folder)
        model.load_state_dict(checkpoint["state_dict"], strict=False)

    def on_train_start(self, trainer: Any, warm_start: bool) -> None:
        """Save the state a round starts from, if that is not done yet."""
        if self.start.checkpoint is None:
            self.save_untrained(trainer)
        if warm_start and from_rank_zero(trainer, self.untrained.is_dir):
            raise MisconfigurationException(
                f"warm_start=True: {type(trainer.strategy).__name__} shards its checkpoints; the weights of one round "
                "cannot be carried over to the next. warm_start=False starts each from the untrained model."
            )

    def save_untrained(self, trainer: Any) -> None:
        temporary = self.untrained.with_name("untrained.ckpt.tmp")  # of one name on all ranks
        self.saving_untrained = True
        trainer.save_checkpoint(temporary)  # on every rank, so not in `write_atomically`
        self.saving_untrained = False

        def keep() -> None:
            try:
                if self.weights_only and temporary.is_file():
                    check_types(temporary)  # now, and not when the next round loads it
                if self.untrained.is_dir():  # of a run whose ledger was removed; sharded checkpoints are folders
                    shutil.rmtree(self.untrained)
                replace_durably(temporary, self.untrained)
            except BaseException:
                temporary.unlink(missing_ok=True) if temporary.is_file() else None
                raise

        from_rank_zero(trainer, keep)

    def on_save_checkpoint(self, trainer: Any, checkpoint: dict[str, Any]) -> None:
        """Leave out of the untrained checkpoint what belongs to the training of one round, and hyperparameters.

        Those may be of any type, which could only be loaded by running code, and `fit` does not read them.
        """
        if self.saving_untrained:
            checkpoint.update(lr_schedulers=[], callbacks={})
            checkpoint.pop("loops")
            if not loads_optimizers(trainer.strategy):
                checkpoint["optimizer_states"] = []
            for name in [name for name in checkpoint if "hyper_parameters" in name or name.startswith("hparams_")]:
                del checkpoint[name]

    def save_trained(self, trainer: Any, module: Any, round_number: int) -> None:
        """The untrained state with the weights of this round, before the ledger says that it is over.

        Not for models whose weights are sharded: their checkpoints are folders, which no single rank can write.
        """
        state_dict = module.state_dict()

        def save() -> None:
            checkpoint = self.load(self.untrained)
            if checkpoint is None:
                return
            checkpoint["state_dict"] = {name: value.cpu() for name, value in state_dict.items()}
            if "current_model_state" in checkpoint:  # of WeightAveraging, which loads the weights from there
                checkpoint["current_model_state"] = checkpoint["state_dict"]
            write_atomically(self.trained(round_number), lambda path: torch.save(checkpoint, path))
            for old in self.folder.glob("trained-*.ckpt"):
                if int(old.stem.removeprefix("trained-")) < round_number - 1:
                    old.unlink()

        from_rank_zero(trainer, save)
