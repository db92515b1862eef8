"""HTML and SVG elements; text that is not markup is escaped."""

from html import escape

from lightning_diffal.studies.report.charts import Number


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | Number | bool | None) -> Markup:
    """<name attributes>children</name>. `class_` is class, `data_fit` data-fit; None and False are left out."""
    shown = "".join(
        attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in {"meta", "input", "br"}:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{joined(*children)}</{name}>")


def attribute(key: str, value: str | Number | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(value if isinstance(value, str) else number(value))}"'


def joined(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def number(value: Number) -> str:
    """A coordinate, short."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))
