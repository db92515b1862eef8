"""Exact search that looks only where a neighbor can be.

Two facts say how near a point x of cell a can come to any point of cell b, with r_b the radius of b:

    |x - c_b| - r_b                                        the ball around c_b
    (|x - c_b|² - |x - c_a|²) / (2 |c_a - c_b|)            the plane halfway between the centers

A first look at the cells around each point bounds the distance of its last neighbor; cells that cannot come that near
are left out. On the hidden layer of a trained network about a tenth of all distances remains; on points without any
structure all of them do, and the answer is the same.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.knn.cells import Cells
from lightning_diffal.numerics.precision import FLOAT32_ROUNDING, TILE_ENTRIES, search_error
from lightning_diffal.numerics.ragged import run_positions, run_starts
from lightning_diffal.numerics.threads import cores, side_by_side
from lightning_diffal.numerics.topk import GROUP, smallest

# Entries of the table "may this point have a neighbor in that cell", one byte each.
TABLE_ENTRIES = 2**25
# Neighbors held for the rows being searched before the far ones are dropped, 24 bytes each.
FOUND_ENTRIES = 2**22
# The first look at a point's surroundings: this many points, in at most so many cells.
FIRST_LOOK = 768
NEAR_CELLS = 48


def search_cells(
    cells: Cells, surroundings: "Surroundings", progress: Progress
) -> tuple[Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The nearest points of those that looked around, themselves among them, and what their float32 error grows with.

    Distances are taken from offsets to a center nearby, so that the spread is the size of the cells a point has looked
    into and not its norm: clusters far from the origin cost no precision.

    Cost: between O(n^0.5 d) and O(n d) for each row. Memory beside the result: O(n d + r count) for sorted copies and
    the first look, and about 200 MiB of tables and tiles.
    """
    found = torch.empty_like(surroundings.position)
    spread = torch.empty_like(surroundings.distance[:, 0])
    at_a_time = cores(found.device)
    # A multiple of the cores, and each part has points from everywhere: all take as long.
    parts = at_a_time * -(-len(found) * len(cells.center) // TABLE_ENTRIES)

    def search(first: int) -> None:
        part = slice(first, None, parts)
        nearest, spread[part] = nearest_of_rows(cells, surroundings, part, FOUND_ENTRIES // at_a_time)
        found[part] = cells.order[nearest]

    side_by_side(search, range(min(parts, len(found))), found.device, progress)
    return found, spread


def share_to_search(cells: Cells, surroundings: "Surroundings") -> float:
    """The share of the pool that a point must be compared with after the first look, judged by two thousand of them."""
    some = slice(None, None, max(1, len(surroundings.of) // 2048))
    rows = surroundings.of[some]
    table, _ = reachable(cells, surroundings, rows, surroundings.distance[some].amax(dim=1))
    return float((table * cells.size[:, None]).sum() / (len(cells.points) * max(1, len(rows))))


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a first look at the cells around each of some points has found."""

    of: Int[Tensor, " r"]  # the positions of those points, ascending: neighbors in space follow each other
    position: Int[Tensor, "r count"]  # the nearest there
    distance: Float[Tensor, "r count"]
    seen: Bool[Tensor, "m m"]  # whether the points of cell i have looked at cell j


def first_look(cells: Cells, of: Int[Tensor, " r"], count: int) -> Surroundings:
    near = cells.center_distance.topk(min(NEAR_CELLS, len(cells.center)), largest=False).indices  # (m, near)
    size = cells.size[near]
    before = size.cumsum(dim=1) - size
    size.masked_fill_(before >= max(FIRST_LOOK, 16 * count), 0)  # who has enough looks no farther
    begin, end = (torch.searchsorted(of, edge) for edge in (cells.start, cells.start + cells.size))
    points = size.sum(dim=1)
    looks = (points >= count) & (begin < end)
    seen = torch.zeros_like(cells.center_distance, dtype=torch.bool).scatter_(1, near, (size > 0) & looks[:, None])
    position = torch.zeros(len(of), count, dtype=torch.long, device=of.device)
    # No two points are farther apart than this makes them; it stays where too few were near.
    half = (2 * cells.norm.amax().square()).expand(position.shape).clone()
    room = points + -points % GROUP
    looking, first_row, last_row, slot, width = (one.tolist() for one in (looks, begin, end, run_starts(room), room))

    def look(first: int) -> None:
        stop = min(first + at_once, len(near))
        others, candidates, half_square = around(cells, slice(first, stop), near, size, room)
        offset = cells.offset[of[first_row[first] : last_row[stop - 1]]]
        tile = new_tile(cells)
        for cell in range(first, stop):
            if not looking[cell]:
                continue
            there = slice(slot[cell] - slot[first], slot[cell] - slot[first] + width[cell])
            for rows in split(first_row[cell], last_row[cell], len(tile) // width[cell]):
                here = offset[rows.start - first_row[first] : rows.stop - first_row[first]]
                # |y|²/2 - x·y, both from this cell's center: half the squared distance, less |x|²/2.
                nearness = part_of(tile, len(here), width[cell])
                torch.addmm(half_square[there], here, candidates[there].T, alpha=-1, out=nearness)
                place = smallest(nearness, count)
                position[rows], half[rows] = others[there].take(place), nearness.gather(1, place)

    fit = TILE_ENTRIES // (max(width) * cells.points.shape[1])
    at_once = max(1, min(fit, -(-len(near) // (8 * cores(near.device)))))
    side_by_side(look, range(0, len(near), at_once), near.device)
    distance = half.mul_(2).add_(cells.offset[of].square().sum(dim=1, keepdim=True))
    return Surroundings(of, position, distance.clamp_min_(0), seen)


def around(
    cells: Cells, some: slice, near: Int[Tensor, "m near"], size: Int[Tensor, "m near"], room: Int[Tensor, " m"]
) -> tuple[Int[Tensor, " p"], Float[Tensor, "p d"], Float[Tensor, " p"]]:
    """What is around some cells: positions, points from the center of the cell, and half their squared norms.

    One cell follows the other, each filled up to its room with points that are infinitely far. All are gathered at
    once: threads get in each other's way with every operation, and least where those are few and large.
    """
    filled = run_positions(run_starts(room[some]), size[some].sum(dim=1))
    others = near.new_zeros(int(room[some].sum()))
    others[filled] = run_positions(cells.start[near[some]].flatten(), size[some].flatten())
    candidates = cells.points.index_select(0, others).sub_(cells.center[some].repeat_interleave(room[some], dim=0))
    half_square = torch.full_like(candidates[:, 0], float("inf"))
    half_square[filled] = candidates.square().sum(dim=1)[filled] / 2
    return others, candidates, half_square


def nearest_of_rows(
    cells: Cells, surroundings: Surroundings, part: slice, most: int
) -> tuple[Int[Tensor, "b count"], Float[Tensor, " b"]]:
    """Positions of the nearest points of some that looked around, and the largest radius of the cells they visited.

    Holds `most` neighbors beyond those it is asked for before the far ones are dropped.
    """
    rows, position, known = surroundings.of[part], surroundings.position[part], surroundings.distance[part]
    points, norm, home = cells.points[rows], cells.norm[rows], cells.home[rows]
    dimensions = points.shape[1]
    farthest = known.amax(dim=1)
    farthest = farthest + search_error(cells.radius[home], norm, farthest, dimensions)
    table, spread = reachable(cells, surroundings, rows, farthest)
    limit = farthest + search_error(spread, norm, farthest, dimensions)
    # The limit takes part in the products below, and so in their rounding.
    spread = torch.maximum(spread, limit.sqrt() / 2)
    visitor_row = torch.cat([points, torch.ones_like(points[:, :1]), -limit[:, None] / 2], dim=1)
    center = torch.nn.functional.pad(cells.center, (0, 2))
    tile = new_tile(cells)
    looked = surroundings.seen.any(dim=1)[home, None]
    excess = torch.where(looked, (known - limit[:, None]) / 2, float("inf"))
    found = Nearest(position.clone(), excess, limit, most)
    places = zip(cells.start.tolist(), cells.slot.tolist(), cells.room.tolist(), strict=True)
    for cell, (start, slot, room) in enumerate(places):
        visitors = table[cell].nonzero()[:, 0]
        if room == 0 or len(visitors) == 0:
            continue
        members = cells.member[slot : slot + room].T
        for some in visitors.split(max(1, TILE_ENTRIES // room)):
            # From the center of the cell that is visited: half of what the squared distance exceeds the limit by.
            offset = visitor_row.index_select(0, some).sub_(center[cell])
            norm = torch.linalg.vector_norm(offset[:, :dimensions], dim=1)
            offset[:, -1].addcmul_(norm, norm, value=0.5)
            excess = part_of(tile, len(some), room)
            torch.mm(offset, members, out=excess)
            # Few visitors find anything: most are sent away by the minimum alone.
            lucky = (excess.amin(dim=1) <= 0).nonzero()[:, 0]
            excess = excess.index_select(0, lucky)
            visitor, member = (excess <= 0).nonzero().unbind(dim=1)
            found.add(some[lucky[visitor]], start + member, excess[visitor, member])
    return found.positions(), spread


def reachable(
    cells: Cells, surroundings: Surroundings, rows: Int[Tensor, " b"], farthest: Float[Tensor, " b"]
) -> tuple[Bool[Tensor, "m b"], Float[Tensor, " b"]]:
    """Which cells not seen yet may hold a neighbor of the points at `rows`, and the largest radius of them and home."""
    table = torch.empty(len(cells.center), len(rows), dtype=torch.bool, device=rows.device)
    spread = cells.radius[cells.home[rows]]
    square = cells.center.square().sum(dim=1)
    # A generous share of |x|² and |c|² covers every rounding in the bounds below, and in the choice of the cells.
    slack = 16 * (cells.points.shape[1] + 8) * FLOAT32_ROUNDING
    # Whoever has seen a cell finds it behind a plane at -∞, and where 0 · -∞ is NaN nothing is below that.
    plane_distance = cells.center_distance.masked_fill(surroundings.seen.T, -float("inf"))  # (m, home)
    for part in split(0, len(rows), TILE_ENTRIES // len(cells.center)):
        points, home, limit = cells.points[rows[part]], cells.home[rows[part]], farthest[part].sqrt()
        own = points.square().sum(dim=1)
        # Both bounds say what |x - c_b|² must stay below, written without |x|², roots and divisions.
        to_center = torch.addmm((square * (1 - slack))[:, None], cells.center, points.T, alpha=-2)  # (m, part)
        plane = torch.addcmul(to_center.gather(0, home[None]), plane_distance.index_select(1, home), 2 * limit)
        ball = (cells.radius[:, None] + limit).square_().sub_(own)
        near = to_center < torch.minimum(plane, ball, out=ball).add_(slack * (own + 2 * square[home] + farthest[part]))
        table[:, part] = near
        spread[part] = torch.maximum(spread[part], (near * cells.radius[:, None]).amax(dim=0))
    return table, spread


class Nearest:
    """The nearest found so far for each of a block of rows, and half of what their squared distances exceed a limit by.

    Args:
        position, excess: Those to begin with, as many as there shall be for each row, in no order.
        most: How many more are held before the far ones are dropped.
    """

    def __init__(
        self, position: Int[Tensor, "b count"], excess: Float[Tensor, "b count"], limit: Float[Tensor, " b"], most: int
    ) -> None:
        self.position, self.excess, self.limit, self.most = position, excess, limit, most
        self.found: list[tuple[Tensor, Tensor, Tensor]] = []
        self.held = 0

    def add(self, row: Int[Tensor, " s"], position: Int[Tensor, " s"], excess: Float[Tensor, " s"]) -> None:
        self.found.append((row, position, excess))
        self.held += len(row)
        # Where very many points lie equally far, all of them come this way.
        if self.held > self.most:
            self.settle()

    def positions(self) -> Int[Tensor, "b count"]:
        self.settle()
        return self.position

    def settle(self) -> None:
        """Keep the nearest of what was added and what was there. Rows that nothing was added to stay as they are."""
        if self.held == 0:
            return
        row, position, excess = (torch.cat(column) for column in zip(*self.found, strict=True))
        count = self.position.shape[1]
        touched = torch.zeros_like(self.limit, dtype=torch.bool)
        touched[row] = True
        rows = touched.nonzero()[:, 0]
        row = torch.cat([rows.repeat_interleave(count), row])
        position = torch.cat([self.position[rows].flatten(), position])
        excess = torch.cat([self.excess[rows].flatten(), excess])
        distance = torch.add(self.limit.index_select(0, row), excess, alpha=2).clamp_min_(0)
        # The bits of floats that are not negative sort as the floats do, so one integer sort orders by both.
        order = ((row << 32) | distance.view(torch.int32)).sort().indices
        held = torch.bincount(row, minlength=len(touched))[rows]
        kept = order[run_positions(run_starts(held), torch.full_like(held, count))]
        self.position[rows], self.excess[rows] = position[kept].view(-1, count), excess[kept].view(-1, count)
        self.found, self.held = [], 0


def new_tile(cells: Cells) -> Float[Tensor, " entries"]:
    """Memory for one product after another: the system takes longer to hand out fresh pages than a product takes."""
    return cells.points.new_empty(max(TILE_ENTRIES, len(cells.points) + GROUP))


def part_of(tile: Float[Tensor, " entries"], height: int, width: int) -> Float[Tensor, "height width"]:
    return tile[: height * width].view(height, width)


def split(start: int, stop: int, height: int) -> list[slice]:
    height = max(1, height)
    return [slice(begin, min(begin + height, stop)) for begin in range(start, stop, height)]
