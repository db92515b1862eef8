"""The weight of an item of a training batch, put where its format has room for it."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal.pool.dataset.classes import describe
from lightning_diffal.pool.dataset.items import LabelField, MapStyle, attributes, with_entry
from lightning_diffal.pool.randomness import temporary_seed

NAME: Final = "weight"


def with_weight(item: Any, weight: float, where: bool | str) -> Any:
    """The item with a weight: last in a tuple or list, under a name in a dictionary or object.

    Args:
        where: Another name than "weight".
    """
    value = torch.tensor(weight, dtype=torch.float32)  # of Python's floats default_collate makes float64
    if isinstance(item, (tuple, list)):
        return type(item)([*item, value])
    return with_entry(item, where if isinstance(where, str) else NAME, value)


def check_item_weight(where: bool | str, dataset: MapStyle, index: int, label_field: LabelField) -> None:
    """Refuse items that cannot carry a weight."""
    if where is False:
        return
    with temporary_seed(0):
        item = label_field.replace(dataset[index], 0)  # as a point with a diffused label is shown
    name, given = where if isinstance(where, str) else NAME, f"LearnFromGraph(weight={where!r})"
    if hasattr(item, "_fields"):
        raise MisconfigurationException(
            f"{given}: an item is {describe(item)}, whose fields are fixed. Items that are a tuple, a list or a "
            "dictionary have room for a weight."
        )
    if isinstance(item, (tuple, list)):
        if isinstance(where, str):
            raise MisconfigurationException(
                f"{given}: an item is {describe(item)}, which has no names. weight=True puts the weight last."
            )
        return
    if name in (item if isinstance(item, Mapping) else attributes(item)):
        raise MisconfigurationException(
            f'{given}: an item is {describe(item)} and has a {name!r} already. LearnFromGraph(weight="...") takes '
            "another name."
        )
