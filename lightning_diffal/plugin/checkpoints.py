"""The checkpoints that rounds start from."""

import shutil
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn.parameter import is_lazy

from lightning_diffal.plugin.distributed.strategies import is_a, loads_optimizers
from lightning_diffal.pool.files import replace_durably, write_atomically


class RoundCheckpoints:
    """Checkpoints of the untrained weights, which every round starts from, and of the last trained ones.

    They hold what makes up the model (weights, hyperparameters, what users add in `on_save_checkpoint`), and nothing of
    the training: `fit(ckpt_path=...)` leaves optimizers and schedulers as `configure_optimizers` has just made them for
    the labels of the round. `FreshStart` does the rest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.untrained = folder, folder / "untrained.ckpt"
        self.must_save_untrained = False
        """Whether the fit under way starts from the user's model, whose state is not saved yet."""
        self.saving_untrained = False
        self.names: set[str] = set()
        """The tensors of the model when the fit under way began."""

    def trained(self, round_number: int) -> Path:
        return self.folder / f"trained-{round_number}.ckpt"

    def start_of(self, round_number: int, warm_start: bool) -> Path | None:
        """The checkpoint a round starts from; None the first time, which starts from the user's model itself."""
        continues = warm_start and round_number > 1
        path = self.trained(round_number - 1) if continues else self.untrained
        if continues and not path.exists():
            raise MisconfigurationException(
                f"warm_start=True: {path} is not there, the weights that round {round_number} starts from. It was "
                "removed, or the rounds before were not run by active.fit with warm_start=True. Put it back, or "
                "continue with warm_start=False, from the untrained model."
            )
        self.must_save_untrained = round_number == 0 or not path.exists()
        return None if self.must_save_untrained else path

    def load_weights(self, path: Path, model: Any) -> None:
        """Load weights into a model outside of a fit, as Lightning does within."""
        if not path.is_file():
            return
        # Our own file, and users' hyperparameters may be of any type.
        checkpoint = torch.load(path, map_location="cpu", weights_only=False)
        model = getattr(model, "_orig_mod", model)
        if overrides(model, "on_load_checkpoint"):
            model.on_load_checkpoint(checkpoint)
        else:
            check_same_model(model, checkpoint["state_dict"], self.folder)
        model.load_state_dict(checkpoint["state_dict"], strict=False)

    def on_train_start(self, trainer: Any, warm_start: bool) -> None:
        """Save the state a round starts from, if that is not done yet."""
        self.names = set(trainer.lightning_module.state_dict())
        if self.must_save_untrained:
            self.save_untrained(trainer)
        if warm_start and self.untrained.is_dir():
            raise MisconfigurationException(
                f"warm_start=True: {type(trainer.strategy).__name__} shards its checkpoints; the weights of one round "
                "cannot be carried over to the next. warm_start=False starts each from the untrained model."
            )

    def check_layers(self, trainer: Any, module: Any) -> None:
        """Refuse a model that training has given other layers, before labels are spent on a round that cannot start."""
        names = set(module.state_dict())
        pruned = any(is_a(callback, "ModelPruning") for callback in trainer.callbacks)  # which FreshStart undoes
        if names != self.names and not pruned:
            change = [f"{name} is new" for name in sorted(names - self.names)]
            change += [f"{name} is gone" for name in sorted(self.names - names)]
            raise MisconfigurationException(
                f"Training has changed the layers of the model: {change[0]}. The next round could not start over from "
                "the untrained weights. Make every layer and buffer in __init__ or configure_model. Nothing was asked."
            )

    def save_untrained(self, trainer: Any) -> None:
        temporary = self.folder / "untrained.ckpt.tmp"
        self.must_save_untrained, self.saving_untrained = False, True
        trainer.save_checkpoint(temporary)  # on every rank, so not in `write_atomically`
        self.saving_untrained = False
        if trainer.is_global_zero:
            if self.untrained.is_dir():  # of a run whose ledger was removed; sharded checkpoints are folders
                shutil.rmtree(self.untrained)
            replace_durably(temporary, self.untrained)
        trainer.strategy.barrier()

    def on_save_checkpoint(self, trainer: Any, checkpoint: dict[str, Any]) -> None:
        """Leave out of the untrained checkpoint what belongs to the training of one round."""
        if self.saving_untrained:
            checkpoint.update(lr_schedulers=[], callbacks={})
            checkpoint.pop("loops")
            if not loads_optimizers(trainer.strategy):
                checkpoint["optimizer_states"] = []

    def save_trained(self, trainer: Any, module: Any, round_number: int) -> None:
        """The untrained state with the weights of this round, before the ledger says that it is over.

        Not for models whose weights are sharded: their checkpoints are folders, which no single rank can write.
        """
        if trainer.is_global_zero and not self.untrained.is_dir():
            # Our own file, and users' hyperparameters may be of any type.
            checkpoint = torch.load(self.untrained, map_location="cpu", weights_only=False)
            checkpoint["state_dict"] = {name: value.cpu() for name, value in module.state_dict().items()}
            if "current_model_state" in checkpoint:  # of WeightAveraging, which loads the weights from there
                checkpoint["current_model_state"] = checkpoint["state_dict"]
            write_atomically(self.trained(round_number), lambda path: torch.save(checkpoint, path))
            for old in self.folder.glob("trained-*.ckpt"):
                if int(old.stem.removeprefix("trained-")) < round_number - 1:
                    old.unlink()
            for leftover in self.folder.glob("trained-*.tmp"):  # of a process that was killed while writing
                leftover.unlink()
        trainer.strategy.barrier()


def check_same_model(model: Any, weights: dict[str, Any], folder: Path) -> None:
    """Refuse a model that was changed since the run was started, before anything is loaded into it."""
    ours = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    changed = [
        f"{name} is {tuple(ours[name].shape)}, where it was {tuple(value.shape)}"
        for name, value in weights.items()
        if name in ours and not is_lazy(ours[name]) and ours[name].shape != value.shape
    ]
    # Layers may be made during the fit, and some models save only a part of themselves.
    whole = not overrides(model, "configure_model") and getattr(model, "strict_loading", True)
    if whole and not changed:
        changed = [f"{name} is new" for name in ours if name not in weights]
        changed += [f"{name} is gone" for name in weights if name not in model.state_dict()]
    if changed:
        more = f" and {len(changed) - 1} more" * (len(changed) > 1)
        raise MisconfigurationException(
            f"The run in {folder} was started with another model: {changed[0]}{more}. Give it the model as it was, or "
            "start a new run with folder=..."
        )


def overrides(model: Any, hook: str) -> bool:
    """Whether a module has a hook of its own, in either of Lightning's namespaces."""
    for cls in type(getattr(model, "_orig_mod", model)).__mro__:
        if cls.__name__ == "LightningModule":
            return False
        if hook in vars(cls):
            return True
    return False
