"""The templates of pages, with the figures that all pages draw alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lightning_diffal.report.charts import Bars, Line, Points, Text
from lightning_diffal.report.style import color_rules
from lightning_diffal.report.svg import Frame, marker_path, number, path


def environment(folder: Path, *functions: Callable[..., Any]) -> Environment:
    """The templates of a folder and those of this one.

    Args:
        functions: What the templates call, by the same names, as functions and as filters.
    """
    made = Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.globals |= {function.__name__: function for function in (color_rules, marker_path, *functions)} | {
        "Frame": Frame
    }
    made.filters |= {one.__name__: one for one in (number, path, duration, *functions)}
    made.tests |= {
        "line": lambda mark: isinstance(mark, Line),
        "points": lambda mark: isinstance(mark, Points),
        "bars": lambda mark: isinstance(mark, Bars),
        "text": lambda mark: isinstance(mark, Text),
    }
    return made


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"
