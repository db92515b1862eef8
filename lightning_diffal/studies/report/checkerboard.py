"""The checkerboard with the points each selector queried, one small board each, round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lightning_diffal.report.charts import Axis, Bars, Chart, Figure, Points, Table
from lightning_diffal.report.style import Style
from lightning_diffal.studies.report.captions import listed, share
from lightning_diffal.studies.report.sections import Section
from lightning_diffal.studies.report.series import Series
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
    "exploring": Style("blue", marker="circle", hollow=True),
    "refining": Style("vermilion", marker="diamond"),
    "queried": Style("purple", marker="square"),
}
"""Different in shape as well as in color."""


@dataclass(frozen=True, kw_only=True)
class LabeledPoint:
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
        return len({self.square(point) for point in self.points})

    @property
    def median_border_distance(self) -> float | None:
        """Median distance of the queried points to the nearest border between classes, in squares."""
        return median(map(self.border_distance, self.queried)) if self.queried else None

    @property
    def accuracies(self) -> list[str]:
        return [share(step.accuracy) for step in self.run.rounds]

    def of_class(self, label: int) -> int:
        return sum(sum(self.square(point)) % 2 == label for point in self.queried)

    def of_kind(self, kind: str) -> int:
        return sum(point.kind == kind for point in self.points)

    def square(self, point: LabeledPoint) -> tuple[int, int]:
        """Column and row; their sum is odd for class 1."""
        last = self.squares - 1
        return min(int(point.x * self.squares), last), min(int(point.y * self.squares), last)

    def border_distance(self, point: LabeledPoint) -> float:
        """The outer edge of the board does not count: the class does not change there."""
        inner = [line / self.squares for line in range(1, self.squares)]
        return min((abs(value - line) * self.squares for value in (point.x, point.y) for line in inner), default=1.0)


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


def board_figure(section: Section) -> Figure | None:
    boards = boards_of(section)
    if not boards:
        return None
    seeds = {board.run.seed for board in boards}
    shown = f"Seed {min(seeds)}" if len(seeds) == 1 else "Selectors share no seed; each board names its own"
    rows = [
        [
            board.series.name,
            str(board.run.seed),
            *(str(board.of_kind(kind)) for kind in KINDS),
            f"{board.of_class(0)} / {board.of_class(1)}",
            f"{board.covered} of {board.squares**2}",
            "–" if board.median_border_distance is None else f"{board.median_border_distance:.3f}",
        ]
        for board in boards
    ]
    head = ["selector", "seed", *KINDS.values()]
    head += ["of class 0 / 1", "squares with a label", "median distance to a border (squares)"]
    return Figure(
        title="Queried points, round by round",
        caption=f"{board_finding(boards)} {shown}. Tinted squares are class 1, the others class 0. "
        "Beside each name: accuracy after training on the points shown.",
        charts=[board_chart(board) for board in boards],
        table=Table(caption="Points on the board, all rounds", head=head, rows=rows),
        columns=4,
    )


def board_keys(boards: Sequence[Board]) -> list[tuple[Style, str]]:
    """Style and name of the kinds of points on the boards."""
    kinds = {point.kind for board in boards for point in board.points}
    return [(KIND_STYLES[kind], name) for kind, name in KINDS.items() if kind in kinds]


def board_finding(boards: Sequence[Board]) -> str:
    """Which selector covers the most squares, and which queries nearest to the borders."""
    distances = {board.series.name: board.median_border_distance for board in boards if board.queried}
    covered = {board.series.name: board.covered for board in boards if board.queried}
    if not covered:
        return "There was no query."
    most, least = max(covered.values()), min(covered, key=lambda name: covered[name])
    leaders = [name for name, squares in covered.items() if squares == most]
    sentence = f"With {listed(leaders)}, {most} of {boards[0].squares ** 2} squares have a label"
    if covered[least] < most:
        sentence += f", with {least} only {covered[least]}"
    if len(covered) > 1:
        near = min(distances, key=lambda name: distances[name] or 0.0)
        sentence += f"; {near} queries nearest to the borders, {distances[near]:.2f} squares away (median)"
    return f"{sentence}."


def board_description(board: Board) -> str:
    counts = [f"{board.of_kind(kind)} {kind}" for kind in ("exploring", "refining") if board.of_kind(kind)]
    phases = f" ({', '.join(counts)})" if counts else ""
    queried = f"{board.series.name}, seed {board.run.seed}: {len(board.queried)} points queried{phases}"
    return f"{queried}; labels in {board.covered} of {board.squares**2} squares."


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
            fit=fit,
        )
        for (fit, kind), group in sorted(groups.items(), key=lambda item: (item[0][0], list(KINDS).index(item[0][1])))
    ]
    return Chart(
        title=board.series.name,
        description=board_description(board),
        x=Axis(low=0, high=1),
        y=Axis(low=0, high=1),
        marks=[Bars(boxes=tinted, fill="tinted"), *points],
        width=SIDE,
        height=SIDE,
        emphasized=board.series.style.wide,
    )
