"""The text of an item: its own, or that of its file."""

import mimetypes
from pathlib import Path
from typing import Final

from lightning_diffal.labeling.question import Item

# Nobody reads more to give a label.
MAX_CHARACTERS: Final = 20_000


def item_text(item: Item, path: Path | None) -> str | None:
    """None if the item has no text and its file is not one, by its name."""
    if item.text is not None or path is None or not (mimetypes.guess_type(path.name)[0] or "").startswith("text/"):
        return item.text
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_CHARACTERS)
    except OSError:
        return None
