"""The pool cut into the Voronoi cells of a few hundred centers, for the search in `cell_search`."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.distributed import SINGLE_PROCESS, Ranks
from lightning_diffal.graph.row_partition import Share
from lightning_diffal.numerics.kmeans import nearest_center
from lightning_diffal.numerics.ragged import run_positions, run_starts
from lightning_diffal.numerics.topk import GROUP

# The search is dealt out to several ranks in cells, if each gets so many, or in runs of so many points.
ENOUGH_CELLS = 64
SHORT_RUN = 32


@dataclass(frozen=True, eq=False)
class Cells:
    """The points in the order of their cells: cell j holds positions [start[j], start[j] + size[j])."""

    order: Int[Tensor, " n"]
    points: Float[Tensor, "n d"]
    offset: Float[Tensor, "n d"]  # y, from the center of the cell
    # -y, |y|²/2 and 1: [x, 1, t]·[-y, |y|²/2, 1] is half the squared distance, less |x|²/2 - t. Cell j holds the rows
    # [slot[j], slot[j] + room[j]), the last of them infinitely far: products of whole groups are a third faster.
    member: Float[Tensor, "p d_plus_2"]
    slot: Int[Tensor, " m"]
    room: Int[Tensor, " m"]
    norm: Float[Tensor, " n"]
    home: Int[Tensor, " n"]
    center: Float[Tensor, "m d"]
    center_distance: Float[Tensor, "m m"]
    radius: Float[Tensor, " m"]
    start: Int[Tensor, " m"]
    size: Int[Tensor, " m"]


def cut(points: Float[Tensor, "n d"], ranks: Ranks = SINGLE_PROCESS) -> Cells:
    """The same cells on all ranks, each of which assigns its share of the points."""
    # A fixed seed: the cells decide how fast the search is, not what it finds.
    generator = torch.Generator(device=points.device).manual_seed(0)
    number = int(len(points) ** 0.5)

    def sample(size: int) -> Float[Tensor, "s d"]:
        return points[torch.randperm(len(points), generator=generator, device=points.device)[:size]]

    center = sample(number)
    for _ in range(5):
        some = sample(32 * number)
        home = nearest_center(some, center)
        members = torch.bincount(home, minlength=number)[:, None]
        moved = torch.zeros_like(center).index_add_(0, home, some) / members.clamp_min(1)
        center = torch.where(members > 0, moved, center)
    center, share = ranks.first(center), Share(ranks, len(points))
    home, order = ranks.joined(nearest_center(share.of(points), center)).sort(stable=True)
    ordered = points[order]
    offset = ordered - center[home]
    size = torch.bincount(home, minlength=number)
    start, room = run_starts(size), size + -size % GROUP
    slot = run_starts(room)
    member = offset.new_zeros(int(room.sum()), offset.shape[1] + 2)
    member[:, -2] = float("inf")
    half_square = offset.square().sum(dim=1, keepdim=True) / 2
    member[run_positions(slot, size)] = torch.cat([-offset, half_square, torch.ones_like(half_square)], dim=1)
    return Cells(
        order=order,
        points=ordered,
        offset=offset,
        member=member,
        slot=slot,
        room=room,
        norm=ordered.norm(dim=1),
        home=home,
        center=center,
        center_distance=torch.cdist(center, center, compute_mode="donot_use_mm_for_euclid_dist"),
        radius=torch.zeros_like(center[:, 0]).scatter_reduce_(0, home, offset.norm(dim=1), "amax"),
        start=start,
        size=size,
    )


def dealt(cells: Cells, ranks: Ranks) -> Int[Tensor, " r"]:
    """The positions that this rank searches from: whole cells, dealt out in turn, or pieces of them where they are few.

    Some cells take longer than others, and many even that out. The points of a cell look around together.
    """
    position = torch.arange(len(cells.order), device=cells.order.device)
    if ranks.alone:
        return position
    if len(cells.center) < ENOUGH_CELLS * ranks.world:
        return position[position // SHORT_RUN % ranks.world == ranks.rank]
    # The largest first, to and fro, so that all get as many points.
    turn = torch.empty_like(cells.size)
    turn[cells.size.argsort(descending=True, stable=True)] = torch.arange(len(turn), device=turn.device)
    place = turn % (2 * ranks.world)
    dealer = torch.minimum(place, 2 * ranks.world - 1 - place)
    return position[dealer[cells.home] == ranks.rank]


def positions_of(cells: Cells, rows: Int[Tensor, " r"]) -> tuple[Int[Tensor, " r"], Int[Tensor, " r"]]:
    """Where in the order of the cells these points stand, ascending, and which of them stands there."""
    place = torch.empty_like(cells.order)
    place[cells.order] = torch.arange(len(place), device=place.device)
    position, which = place[rows].sort()
    return position, which
