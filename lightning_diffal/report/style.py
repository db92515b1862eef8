"""How selectors are drawn, the same in every figure: hue by family, line and marker by member. And all colors."""

from dataclasses import dataclass

# Every color on light and on dark pages. The hues of selectors are Okabe and Ito's, which color-blind readers can tell
# apart; some are darker on white, for a contrast of 3 : 1.
HUES = {
    "vermilion": ("#d55e00", "#f07a24"),
    "ink": ("#3a3a3a", "#e4e4e4"),
    "blue": ("#0072b2", "#3d9bd6"),
    "sky": ("#2f93cc", "#8fd0f7"),
    "green": ("#008f68", "#1db58a"),
    "purple": ("#b5608f", "#dc93ba"),
    "orange": ("#b87f00", "#e69f00"),
    "grey": ("#767676", "#9a9a9a"),
}
PAGE_COLORS = {
    "paper": ("#ffffff", "#15171a"),
    "text": ("#1c1e21", "#e8eaed"),
    "soft": ("#595f66", "#a5abb3"),
    "rule": ("#e3e5e8", "#2d3136"),
    "rule-strong": ("#9aa0a6", "#6b727a"),
    "link": ("#005a8f", "#7cc4f5"),
    "tint": ("#f0f1f3", "#212429"),
    "light-bar": ("#f0c27a", "#c98f3c"),
    "stage-fit": ("#c9cdd2", "#4a5058"),
}
LIGHT = {name: light for name, (light, _) in (HUES | PAGE_COLORS).items()}
DARK = {name: dark for name, (_, dark) in (HUES | PAGE_COLORS).items()}
# The color of each kind of bar.
FILLS = {
    "exploring": "blue",
    "refining": "light-bar",
    "fit": "stage-fit",
    "embedding": "sky",
    "graph": "vermilion",
    "query": "ink",
    "tinted": "tint",
}


@dataclass(frozen=True)
class Style:
    hue: str
    dash: tuple[float, ...] = ()
    marker: str = "circle"
    hollow: bool = False

    @property
    def wide(self) -> bool:
        return self == STYLES["coverage"]

    @property
    def css_class(self) -> str:
        return f"{'hollow ' if self.hollow else ''}hue-{self.hue}{' wide' if self.wide else ''}"


SOLID, DASHED, DOTTED = (), (6.0, 3.0), (1.5, 2.5)
STYLES = {
    "coverage": Style("vermilion"),
    "diffusion": Style("vermilion", DASHED, "square"),
    "random": Style("ink", DASHED, "cross"),
    "uncertainty": Style("blue", SOLID, "square"),
    "margin": Style("blue", DASHED, "up"),
    "entropy": Style("blue", DOTTED, "diamond"),
    "coreset": Style("green", SOLID, "up"),
    "dropout-uncertainty": Style("sky", SOLID, "square"),
    "dropout-entropy": Style("sky", DOTTED, "diamond"),
    "bald": Style("sky", DASHED, "down"),
    "badge": Style("purple", SOLID, "diamond"),
    "bait": Style("purple", DASHED, "up"),
    "typiclust": Style("green", DASHED, "square"),
    "typiclust-features": Style("green", SOLID, "square"),
    "probcover": Style("green", DOTTED, "down"),
    "uherding": Style("green", DASHED, "plus"),
    "poisson": Style("orange", SOLID, "square"),
    "dirichlet": Style("orange", DASHED, "up"),
    "localmax": Style("orange", DOTTED, "diamond"),
    "localmax-poisson": Style("orange", SOLID, "cross"),
    "localmax-dirichlet": Style("orange", DASHED, "plus"),
}
OTHERS = [Style("grey", dash, marker) for marker in ("plus", "cross", "down") for dash in (SOLID, DASHED, DOTTED)]


def style_of(selector: str, name: str) -> Style:
    """Grey for an unknown selector; its own hue with another line for a known one with several sets of parameters."""
    if name in STYLES:
        return STYLES[name]
    other = OTHERS[sum(name.encode()) % len(OTHERS)]
    return Style(STYLES[selector].hue if selector in STYLES else other.hue, other.dash, other.marker)


def rank(selector: str) -> int:
    return list(STYLES).index(selector) if selector in STYLES else len(STYLES)


def color_rules() -> str:
    """All colors as CSS: variables for light and dark pages, and classes that use them."""
    light, dark = ("".join(f"--{name}:{color};" for name, color in theme.items()) for theme in (LIGHT, DARK))
    hues = "".join(f".hue-{name}{{color:var(--{name})}}" for name in HUES)
    fills = "".join(f".fill-{name}{{fill:var(--{hue});background:var(--{hue})}}" for name, hue in FILLS.items())
    return f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{hues}{fills}"
