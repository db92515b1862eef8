"""The pool partitioned into the Voronoi cells of √n centers, for `pruned_search`."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.numerics.contraction import contract
from lightning_diffal.numerics.kmeans import lloyd, nearest_center
from lightning_diffal.numerics.ragged import run_positions, run_starts
from lightning_diffal.numerics.threads import run_parallel, single_thread
from lightning_diffal.numerics.topk import padded_size

# Rough cells are enough: a few iterations of k-means on a small sample.
POINTS_PER_CENTER = 32
ITERATIONS = 5
# Points assigned to cells at a time.
ASSIGNED_ROWS = 4096
# Positions are dealt to the ranks in runs of this length: short enough to divide the work evenly, long enough that
# most cells are searched by one rank.
RUN_LENGTH = 128


@dataclass(frozen=True, eq=False)
class VoronoiCells:
    """The points sorted by cell: cell j holds the positions [start[j], start[j] + size[j])."""

    index: Int[Tensor, " n"]  # the row of the pool at each position
    full_points: Float[Tensor, "n d_full"]
    # What the cells are made of and searched by: the same, or in many dimensions the same `contract`ed.
    points: Float[Tensor, "n d"]
    norm: Float[Tensor, " n"]
    assignment: Int[Tensor, " n"]  # the cell of each position
    start: Int[Tensor, " m"]
    size: Int[Tensor, " m"]
    center: Float[Tensor, "m d"]
    center_distance: Float[Tensor, "m m"]
    radius: Float[Tensor, " m"]
    # -y, |y|²/2 and 1, y from the center of its cell: [x, 1, t]·[-y, |y|²/2, 1] is half the squared distance, less
    # |x|²/2 - t. Each cell is padded with points at infinity to a multiple of GROUP: products are a third faster.
    padded: Float[Tensor, "p d_plus_2"]
    padded_start: Int[Tensor, " m"]
    padded_size: Int[Tensor, " m"]

    @property
    def contracted(self) -> bool:
        """Whether distances of `points` are lower bounds only."""
        return self.points is not self.full_points

    def full_center(self, cell: int) -> Float[Tensor, " d_full"]:
        if not self.contracted:
            return self.center[cell]
        return self.full_points[self.start[cell] : self.start[cell] + self.size[cell]].mean(dim=0)


def build_cells(
    points: Float[Tensor, "n d"], ranks: Ranks = SINGLE_PROCESS, basis: Float[Tensor, "d m"] | None = None
) -> VoronoiCells:
    """The same cells on all ranks, each of which assigns its share of the points.

    With a basis, the cells of what the points are in it. Cost: O(n^1.5 d), d the dimensions of the cells. Memory: 12 d
    + 40 bytes a point, and with a basis a sorted copy of the points.
    """
    full_points, points = points, points if basis is None else contract(points, basis)
    # A fixed seed: the cells decide how fast the search is, not what it finds.
    generator = torch.Generator(device=points.device).manual_seed(0)
    number = int(len(points) ** 0.5)
    drawn = torch.randperm(len(points), generator=generator, device=points.device)[: POINTS_PER_CENTER * number]
    sample = points[drawn]
    with single_thread():  # the cells of an approximate search must not depend on the number of threads
        center = ranks.broadcast(lloyd(sample, sample[:number], ITERATIONS))
    own = points[ranks.own_rows(len(points))]
    nearest = torch.empty_like(own[:, 0], dtype=torch.long)

    def assign(start: int) -> None:
        nearest[start : start + ASSIGNED_ROWS] = nearest_center(own[start : start + ASSIGNED_ROWS], center)

    run_parallel(assign, range(0, len(own), ASSIGNED_ROWS), points.device)
    assigned = ranks.all_gather_cat(nearest)
    assignment, index = assigned.sort(stable=True)
    ordered = points[index]
    offset = ordered - center[assignment]
    size = torch.bincount(assignment, minlength=number)
    padded_start = run_starts(padded_size(size))
    padded = offset.new_zeros(int(padded_size(size).sum()), offset.shape[1] + 2)
    padded[:, -2] = float("inf")
    half_square = offset.square().sum(dim=1, keepdim=True) / 2
    padded[run_positions(padded_start, size)] = torch.cat([-offset, half_square, torch.ones_like(half_square)], dim=1)
    return VoronoiCells(
        index=index,
        full_points=ordered if full_points is points else full_points[index],
        points=ordered,
        norm=ordered.norm(dim=1),
        assignment=assignment,
        start=run_starts(size),
        size=size,
        center=center,
        center_distance=torch.cdist(center, center, compute_mode="donot_use_mm_for_euclid_dist"),
        radius=torch.zeros_like(center[:, 0]).scatter_reduce_(0, assignment, offset.norm(dim=1), "amax"),
        padded=padded,
        padded_start=padded_start,
        padded_size=padded_size(size),
    )


def positions_of_rank(cells: VoronoiCells, ranks: Ranks) -> Int[Tensor, " r"]:
    """The positions that this rank searches from. Points of a cell follow each other and are searched together."""
    position = torch.arange(len(cells.index), device=cells.index.device)
    return position[position // RUN_LENGTH % ranks.world == ranks.rank]


def positions_of_rows(cells: VoronoiCells, rows: Int[Tensor, " r"]) -> tuple[Int[Tensor, " r"], Int[Tensor, " r"]]:
    """The positions of these rows of the pool, ascending, and the order of the rows that makes them so."""
    position = torch.empty_like(cells.index)
    position[cells.index] = torch.arange(len(position), device=position.device)
    ascending, order = position[rows].sort()
    return ascending, order
