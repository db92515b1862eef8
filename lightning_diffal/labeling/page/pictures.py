"""The bytes of an item's picture, and what they are."""

from typing import Final

# What browsers show, by the first bytes of the file: names can be wrong, and nothing else of the disk is served.
SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def picture_type(content: bytes) -> str | None:
    """The media type of a picture; None if it is not one that browsers show."""
    for signature, kind in SIGNATURES:
        if content.startswith(signature):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if content[4:12] == b"ftypavif" else None
