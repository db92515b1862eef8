"""Lightning takes a loader, or lists, dictionaries and CombinedLoaders of them."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException


def flatten_loaders(loaders: Any) -> list[Any]:
    """The single loaders of any arrangement."""
    found: list[Any] = []
    map_loaders(loaders, found.append)
    return found


def map_loaders(loaders: Any, change: Callable[[Any], Any]) -> Any:
    """The same arrangement with each single loader changed."""
    if hasattr(loaders, "flattened"):  # a CombinedLoader of either namespace
        combined = copy.copy(loaders)
        combined.flattened = [change(loader) for loader in loaders.flattened]
        return combined
    if isinstance(loaders, Mapping):
        return {name: map_loaders(loader, change) for name, loader in loaders.items()}
    if isinstance(loaders, (list, tuple)):
        parts = [map_loaders(loader, change) for loader in loaders]
        return type(loaders)(*parts) if hasattr(loaders, "_fields") else type(loaders)(parts)
    return change(loaders)


def named_loader(loaders: Any, name: str | int | None) -> Any:
    """The single loader of that name in a dictionary, or at that position in a list; None without a name."""
    if name is None:
        return None
    inner = getattr(loaders, "iterables", loaders)  # of a CombinedLoader
    if not isinstance(inner, (Mapping, list, tuple)):
        raise MisconfigurationException(
            f"unlabeled={name!r}: there is one training loader, {type(inner).__name__}. A dictionary or list of "
            "loaders is needed, one of them over the labeled points."
        )
    try:
        loader = inner[name]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        names = ", ".join(map(repr, inner)) if isinstance(inner, Mapping) else f"the positions 0 to {len(inner) - 1}"
        raise MisconfigurationException(
            f"unlabeled={name!r}: there is no such training loader. There are {names}."
        ) from None
    if len(flatten_loaders(inner)) == 1 or len(flatten_loaders(loader)) != 1:
        raise MisconfigurationException(f"unlabeled={name!r}: one single loader beside the labeled one is needed.")
    return flatten_loaders(loader)[0]


def without_loader(loaders: Any, name: str | int | None) -> list[Any]:
    """All single loaders but the named one."""
    named = named_loader(loaders, name)
    return [loader for loader in flatten_loaders(loaders) if loader is not named]
