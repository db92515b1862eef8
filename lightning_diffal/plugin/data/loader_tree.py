"""Lightning takes a loader, or lists, dictionaries and CombinedLoaders of them."""

import copy
from collections.abc import Callable, Mapping
from typing import Any


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
