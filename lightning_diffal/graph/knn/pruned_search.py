"""Exact search that skips the cells no neighbor can be in.

Two bounds say how near a point x of cell a can be to any point of cell b, with r_b the radius of b:

    |x - c_b| - r_b                                        the ball around c_b
    (|x - c_b|² - |x - c_a|²) / (2 |c_a - c_b|)            the plane halfway between the centers

A search of the cells around each point bounds the distance of its last neighbor; cells that are farther are skipped. On
the hidden layer of a trained network about a tenth of all distances remains; on points without any structure all of
them do, and the result is the same.

In many dimensions the cells and bounds are those of the leading principal directions, where no distance is larger than
the true one: a point that is too far there is too far. Only for the others the true distance is computed.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.knn.candidate_buffer import CandidateBuffer
from lightning_diffal.graph.knn.pair_distances import pair_distances
from lightning_diffal.graph.knn.voronoi_cells import VoronoiCells
from lightning_diffal.numerics.precision import FLOAT32_ROUNDING, search_error
from lightning_diffal.numerics.ragged import run_positions
from lightning_diffal.numerics.threads import num_threads, run_parallel
from lightning_diffal.numerics.tiles import TILE_ENTRIES, tile_height
from lightning_diffal.numerics.topk import pad_to_groups, topk_grouped

# Entries of the table "may this point have a neighbor in that cell", one byte each.
TABLE_ENTRIES = 2**25
# Candidates held for all rows being searched before the far ones are dropped, 24 bytes each.
BUFFER_CAPACITY = 2**22
# The initial search compares a cell with the nearest cells that hold this many points, at most so many cells.
INITIAL_POINTS = 768
MAX_INITIAL_CELLS = 48
# Parts that the rows of an approximate search are divided into.
FIXED_PARTS = 4
# Points on which it is estimated how much the cells save.
SAMPLE = 2048


@dataclass(frozen=True, eq=False)
class InitialResult:
    """The nearest points that a search of the cells around each query point has found."""

    query: Int[Tensor, " r"]  # the positions searched from, ascending: points of a cell follow each other
    position: Int[Tensor, "r count"]
    distance: Float[Tensor, "r count"]  # squared
    spread: Float[Tensor, " r"]  # what the error of these distances grows with, see `search_error`
    searched: Bool[Tensor, "m m"]  # whether the points of cell i have been compared with cell j


def pruned_search(
    cells: VoronoiCells, initial: InitialResult, progress: Progress, probe: int | None = None
) -> tuple[Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The rows of the nearest points of each query point, itself among them, and what the float32 error grows with.

    Distances are computed from offsets to a center nearby, so that the spread is the size of the cells a point is
    compared with and not its norm: clusters far from the origin cost no precision.

    With `probe` only so many cells, those whose centers are nearest to a point, are searched for its neighbors.

    Cost: between O(n^0.5 d) and O(n d) for each row. Memory besides the result: O(n d + r count) for sorted copies and
    the initial search, and about 200 MiB of tables and tiles.
    """
    found = torch.empty_like(initial.position)
    spread = torch.empty_like(initial.distance[:, 0])
    threads = num_threads(found.device)
    # A multiple of the threads, and each part has points from everywhere: all take about as long.
    # Where cells are left out, rounding may decide which: the parts must not depend on the number of threads.
    parts = (threads if probe is None else FIXED_PARTS) * -(-len(found) * len(cells.center) // TABLE_ENTRIES)

    def search(first: int) -> None:
        part = slice(first, None, parts)
        nearest, spread[part] = search_remaining_cells(cells, initial, part, BUFFER_CAPACITY // threads, probe)
        found[part] = cells.index[nearest]

    run_parallel(search, range(min(parts, len(found))), found.device, progress)
    return found, spread


def remaining_work(cells: VoronoiCells, query: Int[Tensor, " r"], count: int) -> float:
    """What `pruned_search` costs, as a fraction of products with the whole pool; estimated on some of the cells."""
    sample = query[cells.assignment[query] % max(1, len(query) // SAMPLE) == 0]
    initial = search_nearby_cells(cells, sample, count)
    table, _ = cells_in_reach(cells, initial, sample, initial.distance.amax(dim=1))
    searched = float((table * cells.size[:, None]).sum() / (len(cells.points) * max(1, len(sample))))
    return searched * cells.points.shape[1] / cells.full_points.shape[1]


def search_nearby_cells(
    cells: VoronoiCells, query: Int[Tensor, " r"], count: int, number: int = INITIAL_POINTS
) -> InitialResult:
    """The initial search: the points at the positions `query` against about `number` in the cells around their own."""
    near = cells.center_distance.topk(min(MAX_INITIAL_CELLS, len(cells.center)), largest=False).indices  # (m, near)
    size = cells.size[near]
    before = size.cumsum(dim=1) - size
    size.masked_fill_(before >= max(number, 16 * count), 0)  # the cells before have enough points
    begin, end = (torch.searchsorted(query, edge) for edge in (cells.start, cells.start + cells.size))
    active = (size.sum(dim=1) >= count) & (begin < end)
    searched = torch.zeros_like(cells.center_distance, dtype=torch.bool)
    searched.scatter_(1, near, (size > 0) & active[:, None])
    position = torch.zeros(len(query), count, dtype=torch.long, device=query.device)
    # No two points are farther apart than this; it remains where too few points were near.
    distance = (4 * cells.norm.amax().square()).expand(position.shape).clone()
    spread = cells.norm[query]
    first_row, last_row = begin.tolist(), end.tolist()

    def search(cell: int) -> None:
        candidates = run_positions(cells.start[near[cell]], size[cell])
        # Both factors from this cell's center: |y|²/2 - x·y is half the squared distance, less |x|²/2.
        center = cells.full_center(cell)
        points, half_square = pad_to_groups(cells.full_points[candidates] - center)
        for rows in split(first_row[cell], last_row[cell], tile_height(len(points))):
            own = cells.full_points[query[rows]].sub_(center)
            half_distance = torch.addmm(half_square, own, points.T, alpha=-1)
            column = topk_grouped(half_distance, count)
            square = own.square().sum(dim=1, keepdim=True)
            position[rows], spread[rows] = candidates.take(column), square[:, 0].sqrt()
            distance[rows] = half_distance.gather(1, column).mul_(2).add_(square)

    run_parallel(search, active.nonzero()[:, 0].tolist(), query.device)
    return InitialResult(query, position, distance.clamp_min_(0), spread, searched)


def search_remaining_cells(
    cells: VoronoiCells, initial: InitialResult, part: slice, capacity: int, probe: int | None
) -> tuple[Int[Tensor, "b count"], Float[Tensor, " b"]]:
    """Positions of the nearest points of a part of the query points, and the largest radius of the cells compared with.

    Holds `capacity` candidates beyond those it is asked for before the far ones are dropped.
    """
    query, position, known = initial.query[part], initial.position[part], initial.distance[part]
    points, norm, own_cell = cells.points[query], cells.norm[query], cells.assignment[query]
    dimensions, full_dimensions = points.shape[1], cells.full_points.shape[1]
    farthest = known.amax(dim=1)
    farthest = farthest + search_error(initial.spread[part], norm, farthest, full_dimensions)
    table, spread = cells_in_reach(cells, initial, query, farthest, probe)
    limit = farthest + search_error(spread, norm, farthest, full_dimensions)
    # The limit takes part in the products below, and so in their rounding.
    spread = torch.maximum(spread, limit.sqrt() / 2)
    query_vector = torch.cat([points, torch.ones_like(points[:, :1]), -limit[:, None] / 2], dim=1)
    center = torch.nn.functional.pad(cells.center, (0, 2))
    # One buffer for all products: fresh pages take the system longer than a product takes.
    tile = points.new_empty(max(TILE_ENTRIES, int(cells.padded_size.amax())))
    has_result = initial.searched.any(dim=1)[own_cell, None]
    excess = torch.where(has_result, (known - limit[:, None]) / 2, float("inf"))
    nearest = CandidateBuffer(position.clone(), excess, limit, capacity)
    layout = zip(cells.start.tolist(), cells.padded_start.tolist(), cells.padded_size.tolist(), strict=True)
    for cell, (start, padded_start, width) in enumerate(layout):
        in_reach = table[cell].nonzero()[:, 0]
        if width == 0 or len(in_reach) == 0:
            continue
        members = cells.padded[padded_start : padded_start + width].T
        for rows in in_reach.split(tile_height(width)):
            # Relative to the center of this cell: half of what the squared distance exceeds the limit by.
            offset = query_vector.index_select(0, rows).sub_(center[cell])
            norm = torch.linalg.vector_norm(offset[:, :dimensions], dim=1)
            offset[:, -1].addcmul_(norm, norm, value=0.5)
            excess = torch.mm(offset, members, out=tile[: len(rows) * width].view(len(rows), width))
            # Few rows have any hit, and the minimum alone rules out the others.
            with_hits = (excess.amin(dim=1) <= 0).nonzero()[:, 0]
            excess = excess.index_select(0, with_hits)
            row, member = (excess <= 0).nonzero().unbind(dim=1)
            hits, excess = rows[with_hits[row]], excess[row, member]
            if cells.contracted and len(hits):
                distance = pair_distances(cells.full_points, query[hits], start + member)
                excess = (distance - limit[hits]) / 2
            nearest.add(hits, start + member, excess)
    return nearest.nearest(), initial.spread[part] if cells.contracted else spread


def cells_in_reach(
    cells: VoronoiCells,
    initial: InitialResult,
    query: Int[Tensor, " b"],
    farthest: Float[Tensor, " b"],
    probe: int | None = None,
) -> tuple[Bool[Tensor, "m b"], Float[Tensor, " b"]]:
    """Which cells not searched yet may hold a neighbor of each query point, and the largest radius of them and its own.

    Args:
        farthest: The squared distance within which all neighbors are.
        probe: Only the cells with so many nearest centers.
    """
    table = torch.empty(len(cells.center), len(query), dtype=torch.bool, device=query.device)
    spread = cells.radius[cells.assignment[query]]
    square = cells.center.square().sum(dim=1)
    # A generous fraction of |x|² and |c|² covers every rounding in the bounds below, and in the assignment.
    slack = 16 * (cells.points.shape[1] + 8) * FLOAT32_ROUNDING
    # A plane at -∞ excludes a cell that was searched before; where 0 · -∞ is NaN, no comparison with it holds.
    plane_distance = cells.center_distance.masked_fill(initial.searched.T, -float("inf"))  # (m, own cell)
    for part in split(0, len(query), tile_height(len(cells.center))):
        points, own_cell, limit = cells.points[query[part]], cells.assignment[query[part]], farthest[part].sqrt()
        own = points.square().sum(dim=1)
        # Both bounds say what |x - c_b|² must stay below, written without |x|², roots and divisions.
        to_center = torch.addmm((square * (1 - slack))[:, None], cells.center, points.T, alpha=-2)  # (m, part)
        plane = torch.addcmul(to_center.gather(0, own_cell[None]), plane_distance.index_select(1, own_cell), 2 * limit)
        ball = (cells.radius[:, None] + limit).square_().sub_(own)
        rounding = slack * (own + 2 * square[own_cell] + farthest[part])
        near = to_center < torch.minimum(plane, ball, out=ball).add_(rounding)
        if probe is not None and probe < len(near):
            near &= to_center <= to_center.topk(probe, dim=0, largest=False, sorted=False).values.amax(dim=0)
        table[:, part] = near
        spread[part] = torch.maximum(spread[part], (near * cells.radius[:, None]).amax(dim=0))
    return table, spread


def split(start: int, stop: int, height: int) -> list[slice]:
    return [slice(begin, min(begin + height, stop)) for begin in range(start, stop, height)]
