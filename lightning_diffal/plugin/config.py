"""What the user asked for."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from torch.utils.data import Dataset

from lightning_diffal.arguments import check_count, check_flag, skip_type_check
from lightning_diffal.diffusion.learn_from_graph import LearnFromGraph
from lightning_diffal.labeling.people import People
from lightning_diffal.plugin.features.source import INPUTS, FeatureSource
from lightning_diffal.plugin.model.batches import Forward
from lightning_diffal.plugin.model.reader import ModelReading
from lightning_diffal.pool.dataset.items import LabelArgument, LabelField
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass, check_initial, describe_initial
from lightning_diffal.pool.ledger_entries import RunIdentity
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
    oracle: AnswerFunction | People | None
    num_classes: int | None
    stop_when: Callable[[History], bool] | None
    warm_start: bool
    other_data: Sequence[str | int | Dataset[Any]]
    same_data: Sequence[str | int | Dataset[Any]]
    folder: str | Path | None
    trial_batch: bool
    weights_only: bool
    seed: int
    features: Any
    feature_dim: int | None
    learn_from_graph: LearnFromGraph | None
    candidates: int | None
    cache_layer: str | None

    def __post_init__(self) -> None:
        name = self.callback
        check_count(name, "query_size", self.query_size)
        check_count(name, "budget", self.budget)
        for argument in ("pool_batch_size", "num_classes", "feature_dim", "candidates"):
            if getattr(self, argument) is not None:
                check_count(name, argument, getattr(self, argument))
        for argument in ("warm_start", "trial_batch", "weights_only"):
            check_flag(name, argument, getattr(self, argument))
        for argument, (fits, needed) in self.expectations().items():
            if not fits:
                raise ValueError(f"{name}({argument}={getattr(self, argument)!r}): {needed} is needed.")
        LabelField(self.label, self.classes)  # refuses what is not the place of a label
        _ = self.feature_source  # refuses what cannot be features
        # Frozen for others, but an iterable of indices can be read only once.
        object.__setattr__(self, "initial", check_initial(name, self.initial, self.budget))

    def expectations(self) -> dict[str, tuple[bool, str]]:
        """Of each argument that is not a count or a flag: whether it fits, and what would."""

        def optional(argument: str, *types: type) -> bool:
            value = getattr(self, argument)
            return value is None or (isinstance(value, types) and not isinstance(value, bool))

        def is_function(argument: str) -> bool:
            return getattr(self, argument) is None or callable(getattr(self, argument))

        functions = dict.fromkeys(("oracle", "stop_when"), "a function")
        functions |= dict.fromkeys(("forward", "embedding", "logits"), "a function of (module, batch)")
        lists = ("other_data", "same_data")
        loaders = "a list of names, positions or datasets of training loaders"
        return {
            **{name: (is_function(name), needed) for name, needed in functions.items()},
            **{name: (isinstance(getattr(self, name), (list, tuple)), loaders) for name in lists},
            "unlabeled": (optional("unlabeled", str, int), "the name or position of a training loader"),
            "layer": (optional("layer", str), "the dotted name of a submodule, or None,"),
            "cache_layer": (optional("cache_layer", str), "the dotted name of a frozen submodule, or None,"),
            "folder": (optional("folder", str, os.PathLike), "a path, or None,"),
            "candidates": (
                self.candidates is None or self.candidates >= self.query_size,
                f"at least query_size={self.query_size}",
            ),
            "seed": (
                self.seed is not None and optional("seed", int) and 0 <= self.seed < 2**32,
                "a whole number in [0, 2**32)",
            ),
        }

    # The run

    def identity(self, dataset: str | None = None) -> RunIdentity:
        initial = describe_initial(self.initial)
        features = self.feature_source.name if self.feature_source is not None else None
        return RunIdentity(
            selector=self.selector_name, seed=self.seed, initial=initial, features=features, dataset=dataset
        )

    def seed_for(self, round_number: int) -> int:
        return seed_of(self.seed, round_number)

    def folder_for(self, trainer: Any) -> Path | None:
        """The folder of the run; None in a `fast_dev_run`, which writes nothing."""
        if trainer.fast_dev_run:
            return None
        return Path(self.folder) if self.folder is not None else Path(trainer.default_root_dir) / FOLDER

    # Items and model

    @cached_property
    def feature_source(self) -> FeatureSource | None:
        # Learning from the graph needs features from the first round on.
        default = INPUTS if self.learn_from_graph is not None else None
        return FeatureSource.of(self.callback, default if self.features is None else self.features, self.feature_dim)

    @cached_property
    def label_field(self) -> LabelField:
        """With people for an oracle, items need not have a label."""
        names = self.people.classes if self.classes is None and self.people is not None else self.classes
        return LabelField(self.label, names, add=self.people is not None)

    @property
    def people(self) -> People | None:
        return self.oracle if isinstance(self.oracle, People) else None

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
