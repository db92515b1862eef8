"""How a selector is drawn, the same in every figure: hue by family, line and marker by member."""

from dataclasses import dataclass

# Okabe and Ito's colours, which colour-blind readers can tell apart; some darker on white, for a contrast of 3 : 1.
LIGHT = {
    "vermilion": "#d55e00",
    "ink": "#3a3a3a",
    "blue": "#0072b2",
    "sky": "#2f93cc",
    "green": "#008f68",
    "purple": "#b5608f",
    "orange": "#b87f00",
    "grey": "#767676",
}
DARK = {
    "vermilion": "#f07a24",
    "ink": "#e4e4e4",
    "blue": "#3d9bd6",
    "sky": "#8fd0f7",
    "green": "#1db58a",
    "purple": "#dc93ba",
    "orange": "#e69f00",
    "grey": "#9a9a9a",
}
PAPER = {"light": "#ffffff", "dark": "#15171a"}


@dataclass(frozen=True)
class Look:
    hue: str
    dash: tuple[float, ...] = ()
    marker: str = "circle"

    @property
    def wide(self) -> bool:
        return self == LOOKS["diffusion"]


SOLID, DASHED, DOTTED = (), (6.0, 3.0), (1.5, 2.5)
LOOKS = {
    "diffusion": Look("vermilion"),
    "random": Look("ink", DASHED, "cross"),
    "uncertainty": Look("blue", SOLID, "square"),
    "margin": Look("blue", DASHED, "up"),
    "entropy": Look("blue", DOTTED, "diamond"),
    "coreset": Look("green", SOLID, "up"),
    "dropout-uncertainty": Look("sky", SOLID, "square"),
    "dropout-entropy": Look("sky", DOTTED, "diamond"),
    "bald": Look("sky", DASHED, "down"),
    "badge": Look("purple", SOLID, "diamond"),
    "typiclust": Look("green", DASHED, "square"),
    "probcover": Look("green", DOTTED, "down"),
    "poisson": Look("orange", SOLID, "square"),
    "dirichlet": Look("orange", DASHED, "up"),
    "localmax": Look("orange", DOTTED, "diamond"),
    "localmax-poisson": Look("orange", SOLID, "cross"),
    "localmax-dirichlet": Look("orange", DASHED, "plus"),
}
OTHERS = [Look("grey", dash, marker) for marker in ("plus", "cross", "down") for dash in (SOLID, DASHED, DOTTED)]


def look_of(selector: str, name: str) -> Look:
    """Of a selector nobody here knows, a grey one; of one with several sets of parameters, other lines in its hue."""
    if name in LOOKS:
        return LOOKS[name]
    other = OTHERS[sum(name.encode()) % len(OTHERS)]
    return Look(LOOKS[selector].hue if selector in LOOKS else other.hue, other.dash, other.marker)


def rank(selector: str) -> int:
    return list(LOOKS).index(selector) if selector in LOOKS else len(LOOKS)
