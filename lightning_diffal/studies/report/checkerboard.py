"""The checkerboard with the points each selector queried, one small board each, round by round."""

from dataclasses import dataclass
from statistics import median

from lightning_diffal.studies.report.charts import Axis, Bars, Chart, Points
from lightning_diffal.studies.report.sections import Section, Series
from lightning_diffal.studies.report.style import Style
from lightning_diffal.studies.results import Result

SIDE = 200.0
KINDS = {
    "first": "initial labels",
    "exploring": "exploring",
    "refining": "refining",
    "queried": "queried without a graph",
}
KIND_STYLES = {
    "first": Style("ink", marker="plus"),
    "exploring": Style("blue", marker="circle"),
    "refining": Style("vermilion", marker="diamond"),
    "queried": Style("purple", marker="square"),
}
"""Different in shape as well as in color."""


@dataclass(frozen=True, kw_only=True)
class LabeledPoint:
    """One labeled point of the board."""

    fit: int
    """The first fit trained on it, counted from 0."""
    kind: str
    """A key of `KINDS`."""
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Board:
    series: Series
    run: Result
    squares: int
    points: list[LabeledPoint]

    @property
    def queried(self) -> list[LabeledPoint]:
        return [point for point in self.points if point.kind != "first"]

    @property
    def covered(self) -> int:
        """Number of squares with a label."""
        return len({(cell(point.x, self.squares), cell(point.y, self.squares)) for point in self.points})

    @property
    def median_border_distance(self) -> float | None:
        """Median distance of the queried points to the nearest border between classes, in squares."""
        return median(border_distance(point, self.squares) for point in self.queried) if self.queried else None

    def of_class(self, label: int) -> int:
        return sum(class_of(point.x, point.y, self.squares) == label for point in self.queried)

    def of_kind(self, kind: str) -> int:
        return sum(point.kind == kind for point in self.points)


def cell(value: float, squares: int) -> int:
    return min(int(value * squares), squares - 1)


def class_of(x: float, y: float, squares: int) -> int:
    return (cell(x, squares) + cell(y, squares)) % 2


def border_distance(point: LabeledPoint, squares: int) -> float:
    """The outer edge of the board does not count: the class does not change there."""
    inner = [line / squares for line in range(1, squares)]
    return min((abs(value - line) * squares for value in (point.x, point.y) for line in inner), default=1.0)


def boards_of(section: Section) -> list[Board]:
    """A board for each selector, of the lowest seed they share, else of its own lowest; none without coordinates."""
    squares = section.settings.get("squares")
    if not isinstance(squares, int) or not all(run.points for run in section.results):
        return []
    shared = set.intersection(*(set(one.runs) for one in section.series))
    return [board_of(one, one.runs[min(shared or one.runs)], squares) for one in section.series]


def board_of(series: Series, run: Result, squares: int) -> Board:
    labeled = [(index, 0, "first") for index in run.initial]
    for fit, step in enumerate(run.rounds, start=1):
        kinds = {None: "queried", False: "exploring", True: "refining"}
        labeled += [(index, fit, kinds[reached]) for index, reached in zip(step.asked, step.reached, strict=True)]
    missing = [index for index, _, _ in labeled if str(index) not in run.points]
    if missing:
        raise ValueError(
            f"{run.path}: points has no coordinates of {', '.join(map(str, missing[:5]))}, which are labeled."
        )
    outside = [index for index, _, _ in labeled if not all(0 <= part <= 1 for part in run.points[str(index)])]
    if outside:
        where = run.points[str(outside[0])]
        raise ValueError(f"{run.path}: point {outside[0]} lies at {where}, outside the unit square.")
    points = [
        LabeledPoint(fit=fit, kind=kind, x=run.points[str(index)][0], y=run.points[str(index)][1])
        for index, fit, kind in labeled
    ]
    return Board(series=series, run=run, squares=squares, points=points)


def board_charts(section: Section) -> list[Chart]:
    return [board_chart(board) for board in boards_of(section)]


def board_chart(board: Board) -> Chart:
    """Squares of class 1 are tinted. Points are grouped by the first fit trained on them."""
    side = 1 / board.squares
    tinted = [
        (column * side, row * side, (column + 1) * side, (row + 1) * side)
        for column in range(board.squares)
        for row in range(board.squares)
        if (column + row) % 2
    ]
    groups: dict[tuple[int, str], list[LabeledPoint]] = {}
    for point in board.points:
        groups.setdefault((point.fit, point.kind), []).append(point)
    points = [
        Points(
            x=[point.x for point in group],
            y=[point.y for point in group],
            style=KIND_STYLES[kind],
            size=3.6,
            name=KINDS[kind],
            hollow=kind == "exploring",
            fit=fit,
        )
        for (fit, kind), group in sorted(groups.items(), key=lambda item: (item[0][0], list(KINDS).index(item[0][1])))
    ]
    return Chart(
        title=board.series.name,
        x=Axis(low=0, high=1),
        y=Axis(low=0, high=1),
        marks=[Bars(boxes=tinted, fill="tinted"), *points],
        width=SIDE,
        height=SIDE,
        emphasized=board.series.style.wide,
    )
