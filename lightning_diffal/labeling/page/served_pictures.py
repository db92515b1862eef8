"""The bytes of an item's picture, as browsers show it."""

import io
from pathlib import Path
from typing import Final

# By the first bytes of the file: names can be wrong, and nothing else of the disk is served.
SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def read_picture(path: Path) -> tuple[bytes, str] | None:
    """A picture and its media type, as PNG if browsers do not show its format; None if it is no picture."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    kind = picture_type(content)
    return (content, kind) if kind is not None else converted(content)


def picture_type(content: bytes) -> str | None:
    for signature, kind in SIGNATURES:
        if content.startswith(signature):
            return kind
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def converted(content: bytes) -> tuple[bytes, str] | None:
    """TIFF, BMP, PPM and others, where Pillow is there to read them."""
    try:
        from PIL import Image  # noqa: PLC0415, there with torchvision and matplotlib
    except ImportError:
        return None
    made = io.BytesIO()
    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.convert("RGBA" if "A" in picture.getbands() else "RGB").save(made, "PNG")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return made.getvalue(), "image/png"
