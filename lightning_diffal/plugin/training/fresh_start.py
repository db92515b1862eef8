"""Every round starts as on a fresh Trainer: what a fit leaves on the Trainer, its callbacks and the model is undone.

A checkpoint restores weights. But callbacks keep much outside their `state_dict` (StochasticWeightAveraging, Timer,
users' own), loops know that they have reached their end, layers stay frozen, and optimizers may be made only once.
"""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Final

from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from lightning_diffal.plugin.data.loader_tree import flatten_loaders
from lightning_diffal.plugin.distributed.strategies import is_a, loads_optimizers
from lightning_diffal.plugin.training.same_model import check_layers

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
        self.names: set[str] = set()
        """The tensors of the model when the fit under way began."""

    def start_over(self, trainer: Any) -> None:
        """Before a round: restore what a round before has used, and copy what is used for the first time.

        The Trainer's own settings are plain values, as `accumulate_grad_batches`, which callbacks change. Its fit loop,
        a public attribute, holds epoch, step and limits. Callbacks are restored in place: users hold on to them.
        """
        shared = self.shared_objects(trainer)
        restore_or_copy(trainer, shared, plain_only=True)
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
        self.names = set(self.model.state_dict())
        if loads_optimizers(trainer.strategy):  # a sharded checkpoint, which cannot leave them out
            self.restore_optimizers()

    def before_query(self, trainer: Any) -> None:
        """Refuse to spend labels if the next round could not start over."""
        if not any(is_a(callback, "ModelPruning") for callback in trainer.callbacks):  # which `restore_model` undoes
            check_layers(self.model, self.names)

    def after_fit(self, trainer: Any) -> None:
        """Note how the round left things, to tell it from what users set before the next."""
        for part in (trainer, trainer.fit_loop, *callbacks_to_reset(trainer)):
            if SNAPSHOT in vars(part):
                vars(part)[SNAPSHOT].plain_at_end = plain_values(part)

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

    def shared_objects(self, trainer: Any) -> dict[Any, Any]:
        """What callbacks and loops refer to without owning it, as a memo of `copy.deepcopy`: by id, not copied."""
        owners = [trainer, trainer.strategy, trainer.profiler, self.datamodule, *trainer.loggers, *trainer.callbacks]
        parts = [*self.model.modules(), *self.model.parameters(), *self.model.buffers()]
        # A Trainer that was used before still has them.
        loaders = [trainer.train_dataloader, trainer.val_dataloaders]
        used = [loader for given in loaders if given is not None for loader in flatten_loaders(given)]
        data = [getattr(loader, "dataset", None) for loader in used]
        return {id(part): part for part in [*owners, *parts, *used, *data] if part is not None}


def callbacks_to_reset(trainer: Any) -> list[Any]:
    """All callbacks but ours, those that opt out, and SaveConfigCallback, which refuses to save its file twice."""
    return [
        callback
        for callback in trainer.callbacks
        if getattr(callback, "reset_each_round", True) and not is_a(callback, "SaveConfigCallback")
    ]


@dataclass
class Attributes:
    """The attributes of an object from before its first round."""

    copies: dict[str, Any]
    uncopied: set[str] = field(default_factory=set)
    """Names of those that cannot be copied."""
    plain_at_end: dict[str, Any] = field(default_factory=dict)
    """The plain values after the last round. What differs later was set by the user, and is the user's will."""


def restore_or_copy(owner: Any, shared: dict[Any, Any], plain_only: bool = False) -> None:
    """Restore the attributes of an object from the copy it carries or, the first time, make that copy."""
    attributes, memo = vars(owner), dict(shared)
    if SNAPSHOT not in attributes:
        attributes[SNAPSHOT] = copy_attributes(owner, memo, plain_only)
        return
    before: Attributes = attributes[SNAPSHOT]
    now = plain_values(owner)
    before.copies |= {name: now[name] for name, end in before.plain_at_end.items() if now.get(name, end) != end}
    if not plain_only:
        for name in attributes.keys() - before.copies.keys() - before.uncopied - {SNAPSHOT}:
            del attributes[name]
    names = before.copies.keys() & now.keys() if plain_only else before.copies.keys()
    attributes.update({name: deep_copy(before.copies[name], memo) for name in names})


def copy_attributes(owner: Any, memo: dict[Any, Any], plain_only: bool) -> Attributes:
    attributes = Attributes({})
    for name, value in (plain_values(owner) if plain_only else vars(owner)).items():
        try:
            attributes.copies[name] = deep_copy(value, memo)
        except Exception:  # a lock, a file, a connection: each says in its own way that it cannot be copied
            attributes.uncopied.add(name)
            rank_zero_warn(
                f"{type(owner).__name__}.{name} (a {type(value).__name__}) cannot be copied, so it is the same in all "
                "rounds. If it holds what should start over, pass a function that makes Trainers: "
                "active.fit(make_trainer, ...)."
            )
    return attributes


def plain_values(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if isinstance(value, PLAIN)}


def deep_copy(value: Any, memo: dict[Any, Any]) -> Any:
    """A copy, but for data, which may be large and is not state, and for what holds a file or a connection."""
    if isinstance(value, (Dataset, DataLoader)):
        return value
    memo |= {id(handle): handle for handle in handles_in(value, set(memo))}
    return copy.deepcopy(value, memo)


def handles_in(value: Any, seen: set[Any]) -> Iterator[Any]:
    """Files, sockets, connections and whatever cleans up after itself: a copy that goes would close the original.

    Args:
        seen: What is left out, by id; keys of a memo that torch makes may also be names.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, (*PLAIN, bytes, type, Tensor)):
            continue
        seen.add(id(part))
        if hasattr(type(part), "fileno") or hasattr(type(part), "__del__"):
            yield part
            continue
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, (list, tuple, set, frozenset, deque)):
            waiting += part
        elif isinstance(part, MethodType):
            waiting.append(part.__self__)
        waiting += getattr(part, "__dict__", {}).values()


def copy_groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parameter groups with the parameters themselves and copies of the settings."""
    return [
        {name: [*value] if name == "params" else copy.deepcopy(value) for name, value in group.items()}
        for group in groups
    ]
