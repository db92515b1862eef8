"""What the user gave as `features=`: told apart, checked and named before any work."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_diffal.plugin.features.fingerprint import hash_of
from lightning_diffal.plugin.features.values import FILE_SUFFIXES, check_file, check_values, read_file, to_tensor

INPUTS: Final = "inputs"
AUTO: Final = "auto"
NEEDED: Final = (
    "a tensor or array of one row for each point, the path of one (.npy or .safetensors), an encoder (a module or a "
    'function of a batch), the name of a layer, "inputs", "auto" or None is needed'
)

# What a user may pass as `features`.
FeatureArgument: TypeAlias = str | Path | nn.Module | Callable[..., Any] | Tensor | NDArray[Any] | None
# "model" is the embedding of the model as it comes; "auto" chooses among several others.
Kind = Literal["values", "file", "encoder", "function", "layer", "inputs", "model", "auto"]


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """Where fixed features come from.

    Args:
        features: As the user gave it.
        dimensions: `feature_dim`; more are reduced to so many principal components. None keeps all.
    """

    features: Any
    dimensions: int | None
    kind: Kind

    @staticmethod
    def of(caller: str, features: Any, dimensions: int | None) -> "FeatureSource | None":
        """The source in the arguments `features` and `feature_dim` of the callback; None where there are none."""
        if features is None:
            return None
        source = FeatureSource(features, dimensions, kind_of(caller, features))
        if source.kind == "values":
            check_values(caller, to_tensor(features))
        elif source.kind == "file":
            check_file(caller, Path(features))
        elif source.kind == "function":
            check_function_of_batch(caller, features)
        return source

    @property
    def given(self) -> str:
        """The argument, as messages quote it."""
        name = getattr(self.features, "__name__", type(self.features).__name__)
        return (
            f"features={str(self.features)!r}" if isinstance(self.features, (str, os.PathLike)) else f"features={name}"
        )

    @cached_property  # it may hash gigabytes
    def name(self) -> str:
        """What the ledger says of the features: another name is another run. The dataset has a name of its own.

        A layer goes by its name alone: its weights are those before the first fit, whatever they are later.
        """
        what = {
            "values": lambda: f"values {hash_of(self.values)}",
            "file": lambda: f"values {hash_of(self.values)}",
            "encoder": lambda: f"encoder {type(self.features).__name__} {hash_of(self.features)}",
            "function": lambda: f"function {hash_of(self.features)}",
            "layer": lambda: f"layer {self.features}",
            "inputs": lambda: INPUTS,
            "model": lambda: "model",
            "auto": lambda: AUTO,
        }[self.kind]()
        return what if self.dimensions is None else f"{what}, {self.dimensions} components"

    @property
    def of_model(self) -> bool:
        """Whether they are of the model as it comes, before the first fit."""
        return self.kind in ("layer", "model")

    @cached_property
    def values(self) -> Tensor | None:
        """The rows themselves, where the user gave them: one for each point of the dataset."""
        if self.kind == "values":
            return to_tensor(self.features)
        return read_file(Path(self.features)) if self.kind == "file" else None


def kind_of(caller: str, features: Any) -> Kind:
    if isinstance(features, (Tensor, np.ndarray)):
        return "values"
    if isinstance(features, str) and features in (INPUTS, AUTO):
        return "inputs" if features == INPUTS else "auto"
    if isinstance(features, os.PathLike) or (isinstance(features, str) and is_path(features)):
        return "file"
    if isinstance(features, str) and features:
        return "layer"
    if isinstance(features, nn.Module):
        return "encoder"
    if callable(features) and not isinstance(features, type):
        return "function"
    raise ValueError(f"{caller}(features={features!r:.60}): {NEEDED}.")


def is_path(text: str) -> bool:
    """Whether a string is the path of a file and not the dotted name of a layer."""
    return text.endswith(FILE_SUFFIXES) or os.sep in text or Path(text).is_file()


def check_function_of_batch(caller: str, function: Any) -> None:
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        takes = inspect.signature(function)
        raise ValueError(
            f"{caller}(features=...): a function of one argument, the batch, is needed; this one takes {takes}."
        ) from error
    except ValueError:  # of a function written in C, whose signature is not known
        return
