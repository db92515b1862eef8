"""What the user asked for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from lightning_diffal.arguments import check_count, skip_type_check
from lightning_diffal.plugin.model.batches import Forward
from lightning_diffal.plugin.model.reader import ModelReading
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass, check_initial, describe_initial
from lightning_diffal.pool.items import LabelArgument, LabelField
from lightning_diffal.pool.ledger import RunIdentity
from lightning_diffal.pool.oracle import AnswerFunction
from lightning_diffal.pool.randomness import seed_of
from lightning_diffal.selectors.base import Selector

FOLDER: Final = "active_learning"
ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")


@skip_type_check
@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """The arguments of the callback, validated. `ActiveLearning` documents them."""

    callback: str
    """The class of the callback, for messages."""
    query_size: int
    budget: int
    selector: Selector
    initial: int | PerClass | list[int]
    layer: str | None
    forward: Forward | None
    embedding: Forward | None
    logits: Forward | None
    label: LabelArgument | None
    classes: Sequence[str] | None
    unlabeled: str | int | None
    pool: Any
    pool_batch_size: int | None
    oracle: AnswerFunction | None
    num_classes: int | None
    stop_when: Callable[[History], bool] | None
    warm_start: bool
    folder: str | Path | None
    seed: int

    def __post_init__(self) -> None:
        name = self.callback
        check_count(name, "query_size", self.query_size)
        check_count(name, "budget", self.budget)
        for argument in ("pool_batch_size", "num_classes"):
            if getattr(self, argument) is not None:
                check_count(name, argument, getattr(self, argument))
        for argument in ("forward", "oracle", "stop_when"):
            function = getattr(self, argument)
            if function is not None and not callable(function):
                raise ValueError(f"{name}({argument}={function!r}): a function is needed.")
        for argument in ("embedding", "logits"):
            function = getattr(self, argument)
            if function is not None and not callable(function):
                raise ValueError(f"{name}({argument}={function!r}): a function of (module, batch) is needed.")
        if self.unlabeled is not None and (
            isinstance(self.unlabeled, bool) or not isinstance(self.unlabeled, (str, int))
        ):
            raise ValueError(
                f"{name}(unlabeled={self.unlabeled!r}): the name or position of a training loader is needed."
            )
        if self.layer is not None and not isinstance(self.layer, str):
            raise ValueError(f"{name}(layer={self.layer!r}): the dotted name of a submodule is needed, or None.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ValueError(f"{name}(seed={self.seed!r}): a whole number in [0, 2**32) is needed.")
        LabelField(self.label, self.classes)  # refuses what is not the place of a label
        # Frozen for others, but an iterable of indices can be read only once.
        object.__setattr__(self, "initial", check_initial(name, self.initial, self.budget))

    # The run

    def identity(self, dataset: str | None = None) -> RunIdentity:
        initial = describe_initial(self.initial)
        return RunIdentity(selector=self.selector_name, seed=self.seed, initial=initial, dataset=dataset)

    def seed_for(self, round_number: int) -> int:
        return seed_of(self.seed, round_number)

    def folder_for(self, trainer: Any) -> Path | None:
        """The folder of the run; None in a `fast_dev_run`, which writes nothing."""
        if trainer.fast_dev_run:
            return None
        return Path(self.folder) if self.folder is not None else Path(trainer.default_root_dir) / FOLDER

    # Items and model

    @cached_property
    def label_field(self) -> LabelField:
        return LabelField(self.label, self.classes)

    def reading(self, num_classes: int | None) -> ModelReading:
        """How embedding and logits are read off the model.

        Args:
            num_classes: Where it is known before the model has run.
        """
        return ModelReading(
            layer=self.layer,
            forward=self.forward,
            embedding=self.embedding,
            logits=self.logits,
            label=self.label,
            num_classes=num_classes,
        )

    @property
    def selector_name(self) -> str:
        """The selector's repr without addresses, which differ between processes."""
        return ADDRESS.sub("", repr(self.selector))
