"""What was asked in each round: thumbnails or texts with their labels."""

import base64
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from lightning_diffal.labeling.item_text import item_text
from lightning_diffal.report.charts import Table
from lightning_diffal.report.run.metric_figures import cell
from lightning_diffal.report.run.run_data import Asked, RunData

# Of a round, so that a page of a long run still opens.
MOST_ITEMS = 48
MOST_ROWS = 200
THUMBNAIL = (112, 112)
TEXT_LENGTH = 220
REASONS = {None: "", False: "explores", True: "refines"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """An item of the gallery."""

    title: str
    label: str
    labeled: bool
    remarks: Sequence[str]
    """Why it was asked, and what the model thought where that is not the label."""
    image: str | None
    """A thumbnail as a data URL."""
    text: str | None


@dataclass(frozen=True, kw_only=True)
class GalleryRound:
    title: str
    summary: str
    cards: Sequence[Card]
    left_out: int
    table: Table


def gallery(run: RunData) -> list[GalleryRound]:
    """The rounds that asked for something. Cards are there where people were asked; numbers always."""
    return [round_of(run, number, points) for number, points in run.asked.items() if points]


def round_of(run: RunData, number: int, points: Sequence[Asked]) -> GalleryRound:
    shown = [one for one in points if one.question is not None]
    labels = Counter(one.label for one in points)
    spread = ", ".join(f"{label} {count}" for label, count in labels.most_common(12))
    more = ", …" if len(labels) > 12 else ""
    rows = [[str(one.index), one.label, cell(one.score), REASONS[one.reached] or "–"] for one in points[:MOST_ROWS]]
    left = f"; the first {MOST_ROWS} of {len(points)}, selection.csv has all" if len(points) > MOST_ROWS else ""
    return GalleryRound(
        title="First labels" if number == 0 else f"Round {number}",
        summary=f"{len(points):,} points: {spread}{more}.",
        cards=[card_of(run.folder, one) for one in shown[:MOST_ITEMS]],
        left_out=max(0, len(shown) - MOST_ITEMS),
        table=Table(caption=f"Points in the order asked{left}", head=["point", "label", "score", "why"], rows=rows),
    )


def card_of(folder: Path, one: Asked) -> Card:
    question = one.question
    assert question is not None
    path = question.file(folder)
    image = thumbnail(path) if path is not None else None
    text = item_text(question, path) if image is None else None
    if image is None and text is None:
        text = f"{Path(question.path).name if question.path else f'Point {one.index}'} cannot be shown."
    wrong = question.prediction is not None and one.labeled and question.prediction != one.label
    remarks = [REASONS[one.reached], f"model: {question.prediction}" if wrong else ""]
    return Card(
        title=f"Point {one.index}{f', {path.name}' if path is not None else ''}",
        label=one.label,
        labeled=one.labeled,
        remarks=[remark for remark in remarks if remark],
        image=image,
        text=text if text is None or len(text) <= TEXT_LENGTH else f"{text[: TEXT_LENGTH - 1]}…",
    )


def thumbnail(path: Path) -> str | None:
    """A small copy of a picture as a data URL; None if it cannot be read."""
    made = io.BytesIO()
    try:
        with Image.open(path) as picture:
            small = picture if picture.mode in ("L", "RGB", "RGBA") else picture.convert("RGB")
            kind = "png" if max(small.size) <= max(THUMBNAIL) or small.mode == "RGBA" else "jpeg"
            small.thumbnail(THUMBNAIL)
            small.save(made, kind, **({"quality": 82} if kind == "jpeg" else {"optimize": True}))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return f"data:image/{kind};base64,{base64.b64encode(made.getvalue()).decode()}"
