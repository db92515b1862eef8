"""What the user asked for."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch.utils.data import Dataset

from lightning_diffal.arguments import check_count, check_flag, skip_type_check
from lightning_diffal.plugin.model.batches import Forward
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass, check_initial, describe_initial
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
    pool: Any
    pool_batch_size: int | None
    oracle: AnswerFunction | None
    num_classes: int | None
    stop_when: Callable[[History], bool] | None
    warm_start: bool
    other_data: Sequence[str | int | Dataset[Any]]
    same_data: Sequence[str | int | Dataset[Any]]
    folder: str | Path | None
    weights_only: bool
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
        if self.layer is not None and not isinstance(self.layer, str):
            raise ValueError(f"{name}(layer={self.layer!r}): the dotted name of a submodule is needed, or None.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ValueError(f"{name}(seed={self.seed!r}): a whole number in [0, 2**32) is needed.")
        if self.folder is not None and not isinstance(self.folder, (str, os.PathLike)):
            raise ValueError(f"{name}(folder={self.folder!r}): a path is needed, or None.")
        for argument in ("warm_start", "weights_only"):
            check_flag(name, argument, getattr(self, argument))
        for argument in ("other_data", "same_data"):
            if not isinstance(getattr(self, argument), (list, tuple)):
                raise ValueError(
                    f"{name}({argument}={getattr(self, argument)!r}): a list of names, positions or datasets of "
                    "training loaders is needed."
                )
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

    @property
    def selector_name(self) -> str:
        """The selector's repr without addresses, which differ between processes."""
        return ADDRESS.sub("", repr(self.selector))
