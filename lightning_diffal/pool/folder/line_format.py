"""The format of a line: a version, the content, a checksum of both. Lines of older versions have neither."""

import hashlib
import json
from typing import Any, Final

# Readers accept newer minor versions, whose new fields and kinds of lines they may ignore, and refuse newer majors.
FORMAT: Final = "1.2"


def seal(content: dict[str, Any], version: str = FORMAT) -> dict[str, Any]:
    """The content with the version and the checksum of both."""
    line = {"format": version, **content}
    return {**line, "checksum": checksum(line)}


def unseal(line: dict[str, Any]) -> dict[str, Any]:
    """The content of a line; one without version and checksum, as older versions wrote it, is its content.

    Raises:
        ValueError: It was changed after it was written, or a newer version wrote it.
    """
    if "format" not in line and "checksum" not in line:
        return line
    version = line.get("format")
    major, dot, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"its format is {version!r}, where a version like {FORMAT!r} is needed.")
    if int(major) > int(FORMAT.partition(".")[0]):
        raise ValueError(f"format {version} is of a newer version of lightning-diffal; this one reads {FORMAT}.")
    rest = {name: value for name, value in line.items() if name != "checksum"}
    if line.get("checksum") != checksum(rest):
        raise ValueError(
            "its checksum does not match: the line was changed after it was written. `lightning-diffal repair` "
            "fixes what it safely can; `lightning-diffal correct` changes a single label."
        )
    return {name: value for name, value in rest.items() if name != "format"}


def checksum(content: dict[str, Any]) -> str:
    """A hash of the values, whatever the order of names and the spaces between them."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_object(line: bytes) -> dict[str, Any]:
    """A JSON object as the standard has it.

    Raises:
        ValueError: It is something else, is nested too deeply, has a name twice, or holds NaN.
    """
    try:
        content = json.loads(line, parse_constant=refuse_constant, object_pairs_hook=unique_names)
    except RecursionError:
        raise ValueError("this JSON is nested too deeply.") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"this is not JSON ({error}).") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError("a JSON object is needed.")
    return content


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON.")


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice.")
    return content
