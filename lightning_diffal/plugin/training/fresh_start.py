"""Every round starts as on a fresh Trainer: what a fit leaves on the Trainer, its callbacks and the model is undone.

A checkpoint restores weights. But callbacks keep much outside their `state_dict` (StochasticWeightAveraging, Timer,
users' own), loops know that they have reached their end, layers stay frozen, and optimizers may be made only once.
"""

import copy
from typing import Any, Final

from lightning.pytorch.utilities import rank_zero_warn
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from lightning_diffal.plugin.distributed.strategies import is_a, loads_optimizers

SNAPSHOT: Final = "_before_first_round"
"""The attribute in which an object carries a copy of its own attributes from before its first round."""
PLAIN: Final = (bool, int, float, str, type(None))


class FreshStart:
    """Puts a Trainer, its callbacks and a model back to what they were before their first round."""

    def __init__(self, model: Any, datamodule: Any) -> None:
        self.datamodule = datamodule
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.requires_grad = {name: parameter.requires_grad for name, parameter in self.model.named_parameters()}
        self.training = {name: module.training for name, module in self.model.named_modules()}
        self.optimizers: list[tuple[Optimizer, list[dict[str, Any]]]] = []
        self.schedulers: list[tuple[Any, dict[str, Any]]] = []

    def start_over(self, trainer: Any) -> None:
        """Before a round: restore what a round before has used, and copy what is used for the first time.

        The Trainer's own settings are plain values, as `accumulate_grad_batches`, which callbacks change. Its fit loop,
        a public attribute, holds epoch, step and limits. Callbacks are restored in place: users hold on to them.
        """
        shared = self.shared_objects(trainer)
        restore_settings(trainer)
        for part in (trainer.fit_loop, *callbacks_to_reset(trainer)):
            restore_or_copy(part, shared)
        self.restore_model(trainer)
        self.restore_optimizers()

    def on_setup(self, trainer: Any) -> None:
        """Copy the callbacks of the module itself, which join the Trainer's when a fit begins."""
        shared = self.shared_objects(trainer)
        for callback in callbacks_to_reset(trainer):
            if SNAPSHOT not in vars(callback):
                restore_or_copy(callback, shared)

    def on_fit_start(self, trainer: Any) -> None:
        """Copy the settings of optimizers and schedulers: `configure_optimizers` may return the same ones again."""
        self.optimizers = [
            (optimizer, copy_groups(optimizer.param_groups))
            for optimizer in trainer.optimizers
            if isinstance(optimizer, Optimizer)  # not DeepSpeed's
        ]
        configs = trainer.lr_scheduler_configs
        self.schedulers = [(config.scheduler, copy.deepcopy(config.scheduler.state_dict())) for config in configs]

    def on_train_start(self, trainer: Any) -> None:
        """Undo what a sharded checkpoint, which cannot leave them out, has restored in the optimizers."""
        if loads_optimizers(trainer.strategy):
            self.restore_optimizers()

    def restore_optimizers(self) -> None:
        for optimizer, groups in self.optimizers:
            optimizer.state.clear()
            optimizer.param_groups[:] = copy_groups(groups)
        for scheduler, state in self.schedulers:
            scheduler.load_state_dict(copy.deepcopy(state))

    def restore_model(self, trainer: Any) -> None:
        for callback in trainer.callbacks:
            if is_a(callback, "ModelPruning"):  # it may leave two tensors in place of each that it prunes
                callback.make_pruning_permanent(self.model)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad != self.requires_grad.get(name, parameter.requires_grad):
                parameter.requires_grad_(not parameter.requires_grad)
        for name, module in self.model.named_modules():
            module.training = self.training.get(name, module.training)

    def shared_objects(self, trainer: Any) -> dict[int, Any]:
        """What callbacks and loops refer to without owning it, as a memo of `copy.deepcopy`: by id, not copied."""
        owners = [trainer, trainer.strategy, trainer.profiler, self.datamodule, *trainer.loggers, *trainer.callbacks]
        parts = [*self.model.modules(), *self.model.parameters(), *self.model.buffers()]
        return {id(part): part for part in [*owners, *parts] if part is not None}


def callbacks_to_reset(trainer: Any) -> list[Any]:
    """All callbacks but ours, those that opt out, and SaveConfigCallback, which refuses to save its file twice."""
    return [
        callback
        for callback in trainer.callbacks
        if getattr(callback, "reset_each_round", True) and not is_a(callback, "SaveConfigCallback")
    ]


def restore_settings(trainer: Any) -> None:
    """Restore the attributes of a Trainer that are plain values."""
    plain = {name: value for name, value in vars(trainer).items() if isinstance(value, PLAIN)}
    before = vars(trainer).setdefault(SNAPSHOT, plain)
    vars(trainer).update({name: value for name, value in before.items() if name in plain})


def restore_or_copy(owner: Any, shared: dict[int, Any]) -> None:
    """Restore the attributes of an object from the copy it carries or, the first time, make that copy."""
    attributes, memo = vars(owner), dict(shared)
    if SNAPSHOT in attributes:
        copies, uncopied = attributes[SNAPSHOT]
        for name in attributes.keys() - copies.keys() - uncopied - {SNAPSHOT}:
            del attributes[name]
        attributes.update({name: deep_copy(value, memo) for name, value in copies.items()})
        return
    copies, uncopied = {}, set()
    for name, value in attributes.items():
        try:
            copies[name] = deep_copy(value, memo)
        except Exception:  # a lock, a file, a connection: each says in its own way that it cannot be copied
            uncopied.add(name)
    attributes[SNAPSHOT] = copies, uncopied
    for name in sorted(uncopied):
        rank_zero_warn(
            f"{type(owner).__name__}.{name} (a {type(attributes[name]).__name__}) cannot be copied, so it is the same "
            "in every round. If it holds what should start over, pass a function that makes Trainers: "
            "active.fit(make_trainer, ...)."
        )


def deep_copy(value: Any, memo: dict[int, Any]) -> Any:
    """A copy, but for data, which may be large and is not state."""
    return value if isinstance(value, (Dataset, DataLoader)) else copy.deepcopy(value, memo)


def copy_groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parameter groups with the parameters themselves and copies of the settings."""
    return [
        {name: [*value] if name == "params" else copy.deepcopy(value) for name, value in group.items()}
        for group in groups
    ]
