"""The checkerboard with the points each selector asked, one small board each, round by round."""

from dataclasses import dataclass
from statistics import median

from lightning_diffal.studies.report.look import Look
from lightning_diffal.studies.report.markup import Markup, element
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.svg import drawing, markers
from lightning_diffal.studies.results import Result

SIDE = 200.0
KINDS = ("first", "exploring", "refining", "asked")
KIND_LOOKS = {
    "first": Look("ink", marker="plus"),
    "exploring": Look("blue", marker="circle"),
    "refining": Look("vermilion", marker="diamond"),
    "asked": Look("purple", marker="square"),
}
"""Apart in shape as well as in colour: a cross, a ring, a filled diamond, a filled square."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One labeled point of the board."""

    fit: int
    """The first fit that trains on it, counted from 0."""
    kind: str
    """"first" labels; "exploring" or "refining" where a graph was asked, plain "asked" where none was."""
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Board:
    series: Series
    run: Result
    squares: int
    points: list[Asked]

    @property
    def queried(self) -> list[Asked]:
        return [point for point in self.points if point.kind != "first"]

    @property
    def covered(self) -> int:
        """Squares with a label in them."""
        return len({(cell(point.x, self.squares), cell(point.y, self.squares)) for point in self.points})

    @property
    def off_border(self) -> float | None:
        """Median distance of the asked points to the nearest border between classes, in squares."""
        return median(to_border(point, self.squares) for point in self.queried) if self.queried else None

    def of_class(self, label: int) -> int:
        return sum(class_of(point.x, point.y, self.squares) == label for point in self.queried)

    def of_kind(self, kind: str) -> int:
        return sum(point.kind == kind for point in self.points)


def cell(value: float, squares: int) -> int:
    return min(int(value * squares), squares - 1)


def class_of(x: float, y: float, squares: int) -> int:
    return (cell(x, squares) + cell(y, squares)) % 2


def to_border(point: Asked, squares: int) -> float:
    """The outer edge of the board is no border: the class does not change there."""
    inner = [line / squares for line in range(1, squares)]
    return min((abs(value - line) * squares for value in (point.x, point.y) for line in inner), default=1.0)


def boards_of(section: Section) -> list[Board]:
    """A board for each selector, of the lowest seed all have, else of its own lowest; none without coordinates."""
    squares = section.settings.get("squares")
    if not isinstance(squares, int) or not all(run.points for run in section.results):
        return []
    shared = set.intersection(*(set(one.runs) for one in section.series))
    return [board_of(one, one.runs[min(shared or one.runs)], squares) for one in section.series]


def board_of(series: Series, run: Result, squares: int) -> Board:
    asked = [(index, 0, "first") for index in run.initial]
    for place, step in enumerate(run.rounds, start=1):
        kinds = {None: "asked", False: "exploring", True: "refining"}
        asked += [(index, place, kinds[reached]) for index, reached in zip(step.asked, step.reached, strict=True)]
    missing = [index for index, _, _ in asked if str(index) not in run.points]
    if missing:
        raise ValueError(
            f"{run.path}: points has no coordinates of {', '.join(map(str, missing[:5]))}, which were labeled."
        )
    outside = [index for index, _, _ in asked if not all(0 <= part <= 1 for part in run.points[str(index)])]
    if outside:
        where = run.points[str(outside[0])]
        raise ValueError(f"{run.path}: point {outside[0]} lies at {where}, outside the unit square.")
    points = [
        Asked(fit=fit, kind=kind, x=run.points[str(index)][0], y=run.points[str(index)][1])
        for index, fit, kind in asked
    ]
    return Board(series=series, run=run, squares=squares, points=points)


def board_chart(board: Board, name: str) -> Markup:
    """Squares of class 1 are tinted. Points are grouped by the first fit that trains on them."""
    side = SIDE / board.squares
    tinted = [
        element("rect", x=column * side, y=SIDE - (row + 1) * side, width=side, height=side, class_="tinted")
        for column in range(board.squares)
        for row in range(board.squares)
        if (column + row) % 2
    ]
    fits = sorted({point.fit for point in board.points})
    groups = [element("g", *fit_marks(board, fit), data_fit=fit) for fit in fits]
    edge = element("rect", x=0, y=0, width=SIDE, height=SIDE, class_="edge")
    return drawing(SIDE, SIDE, name, *tinted, edge, *groups, class_="board")


def fit_marks(board: Board, fit: int) -> list[Markup]:
    marks = []
    for kind in KINDS:
        here = [
            (point.x * SIDE, SIDE - point.y * SIDE) for point in board.points if (point.fit, point.kind) == (fit, kind)
        ]
        if here:
            marks.append(
                element("g", markers(here, KIND_LOOKS[kind], 3.6), class_=f"{kind} hue-{KIND_LOOKS[kind].hue}")
            )
    return marks
