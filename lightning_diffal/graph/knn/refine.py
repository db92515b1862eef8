"""From candidates of a float32 search to the exact neighbors: the same points in the same order, whatever the backend.

Distances are recomputed from differences, Σ (x - y)², in float64; ties go to the lower index. A row is certain when its
k-th neighbor is nearer than any point the search may have left out, given how far its arithmetic can be wrong. Rows
that are not certain must be searched again, with more candidates or finer arithmetic, in the end among all points that
float32 cannot rule out.
"""

import threading

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.graph.knn.candidates import Candidates
from lightning_diffal.graph.knn.pair_distances import pair_distances
from lightning_diffal.numerics.precision import search_error, wide_dtype
from lightning_diffal.numerics.ragged import side_by_side
from lightning_diffal.numerics.threads import run_parallel
from lightning_diffal.numerics.tiles import DIFFERENCE_BYTES, tile_height
from lightning_diffal.numerics.topk import kth_smallest, sort_rows

# Rows refined at a time, at least. In many dimensions, the differences are computed for fewer at a time.
REFINED_ROWS = 256
# Points hashed at a time, so that the copies stay in the cache.
HASHED_ROWS = 1024


def squared_distances(x: Float[Tensor, " b #m d"], y: Float[Tensor, "#b m d"]) -> Float[Tensor, "b m"]:
    return (x.to(wide_dtype(x.device)) - y).square_().sum(dim=2)  # y is widened as it is read: one copy less


def refine(
    points: Float[Tensor, "n d"], candidates: Candidates, neighbors: int, norm: Float[Tensor, " r"]
) -> tuple[Int[Tensor, "r k"], Float[Tensor, "r k"], Bool[Tensor, " r"]]:
    """The `neighbors` nearest of each row, itself excluded, their squared distances, and whether they are certain.

    Args:
        points: In the units of the search, so that its error bound applies.
        norm: Of the rows, as the search has seen them: its error grows with it, see `search_error`.
    """
    rows, count, dimensions = candidates.rows, candidates.neighbors.shape[1], points.shape[1]
    nearest = torch.empty(len(rows), neighbors, dtype=torch.long, device=points.device)
    distance = torch.empty(len(rows), neighbors, dtype=wide_dtype(points.device), device=points.device)
    certain = torch.ones(len(rows), dtype=torch.bool, device=points.device)
    buffers = threading.local()
    height = max(REFINED_ROWS, tile_height(8 * count * dimensions, DIFFERENCE_BYTES))

    def refine_part(start: int) -> None:
        part = slice(start, start + height)
        index, to_others = candidate_distances(points, rows[part], candidates.neighbors[part], buffers)
        nearest[part], distance[part], kth = select_nearest(index, to_others, neighbors)
        if count == len(points):
            return
        last = to_others.masked_fill(to_others.isinf(), 0).amax(dim=1)
        error = search_error(candidates.spread[part], norm[part], torch.stack([kth, last]), dimensions)
        certain[part] = kth + error[0] < last - error[1]

    run_parallel(refine_part, range(0, len(rows), height), points.device)
    return nearest, distance, certain


def candidate_distances(
    points: Float[Tensor, "n d"], rows: Int[Tensor, " b"], candidates: Int[Tensor, "b m"], buffers: threading.local
) -> tuple[Int[Tensor, "b m"], Float[Tensor, "b m"]]:
    """Candidates sorted by index and their squared distances, infinite for the row itself."""
    index = sort_rows(candidates)
    count, wide = index.shape[1], wide_dtype(points.device)
    distance = torch.empty(index.shape, dtype=wide, device=points.device)
    height = tile_height(8 * count * points.shape[1], DIFFERENCE_BYTES)
    if not hasattr(buffers, "others"):
        # One for all rows of a thread: fresh pages take the system longer than the differences take.
        buffers.others = points.new_empty(height * count, points.shape[1])
        buffers.difference = buffers.others.new_empty(buffers.others.shape, dtype=wide)
    for own, near, out in zip(rows.split(height), index.split(height), distance.split(height), strict=True):
        others = torch.index_select(points, 0, near.flatten(), out=buffers.others[: near.numel()])
        difference = buffers.difference[: near.numel()].copy_(others).view(*near.shape, -1)
        difference.sub_(points[own].to(wide)[:, None])
        torch.sum(difference.square_(), dim=2, out=out)
    return index, distance.masked_fill_(index == rows[:, None], float("inf"))


def select_nearest(
    index: Int[Tensor, "b m"], distance: Float[Tensor, "b m"], neighbors: int
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"], Float[Tensor, " b"]]:
    """The nearest of candidates sorted by index, in that order, their distances, and that of the k-th nearest."""
    kth = kth_smallest(distance, neighbors)
    nearer, tied = distance < kth, distance == kth
    # Of those exactly as far as the k-th, the lowest indices are taken.
    kept = nearer | (tied & (tied.cumsum(dim=1) <= neighbors - nearer.sum(dim=1, keepdim=True)))
    return index[kept].view(-1, neighbors), distance[kept].view(-1, neighbors), kth[:, 0]


def search_by_differences(
    points: Float[Tensor, "n d"],
    centered: Float[Tensor, "n d"],
    rows: Int[Tensor, " r"],
    kth: Float[Tensor, " r"],
    neighbors: int,
) -> tuple[Int[Tensor, "r k"], Float[Tensor, "r k"]]:
    """The neighbors of a few points, by the differences to all points that products do not prove to be farther.

    Args:
        centered: The points around their mean in float32, of which the products are.
        kth: A squared distance within which each row is known to have its neighbors.

    Cost: O(r n d) in float32, and in float64 for what remains: a few dozen points of a row, all where all are as far.
    """
    nearest = torch.empty(len(rows), neighbors, dtype=torch.long, device=points.device)
    distance = torch.empty(len(rows), neighbors, dtype=wide_dtype(points.device), device=points.device)
    half_square = centered.square().sum(dim=1) / 2
    # What is too small for float32 is lost.
    underflow = points.shape[1] * torch.finfo(centered.dtype).tiny
    height = tile_height(len(points))

    def search(start: int) -> None:
        part = slice(start, start + height)
        norm = (2 * half_square[rows[part]]).sqrt()
        limit = kth[part] + search_error(norm, norm, kth[part], points.shape[1]) + underflow
        half = torch.addmm(half_square, centered[rows[part]], centered.T, alpha=-1)
        near = half <= (limit / 2 - half_square[rows[part]])[:, None]
        row, column = near.scatter_(1, rows[part, None], False).nonzero().unbind(dim=1)
        to_others = pair_distances(points, rows[part][row], column, distance.dtype)
        size = torch.bincount(row, minlength=len(norm))
        index, table = side_by_side(row, size, column, 0), side_by_side(row, size, to_others, float("inf"))
        nearest[part], distance[part], _ = select_nearest(index, table, neighbors)

    run_parallel(search, range(0, len(rows), height), points.device)
    return nearest, distance


def surplus_copies(points: Float[Tensor, "n d"], max_copies: int) -> tuple[Bool[Tensor, " n"], Int[Tensor, " n"]]:
    """Which points coincide with `max_copies` or more points of lower index; for each point the first equal one.

    Surplus points are no point's neighbors, since ties go to the lower index. Without them no search meets a distance
    shared by thousands of points.
    """
    generator = torch.Generator(device=points.device).manual_seed(0)
    width = points.element_size() // 4 * points.shape[1]
    factor = torch.randint(2**31, (width,), generator=generator, device=points.device, dtype=torch.int32) | 1
    unsorted = torch.empty_like(points[:, 0], dtype=torch.long)

    def hash_part(start: int) -> None:
        bits = (points[start : start + HASHED_ROWS] + 0.0).view(torch.int32)  # -0.0 becomes 0.0
        # Integers wrap around and do not round: equal rows have equal hashes.
        unsorted[start : start + HASHED_ROWS] = bits.mul_(factor).sum(dim=1)

    run_parallel(hash_part, range(0, len(points), HASHED_ROWS), points.device)
    hashes, order = unsorted.sort(stable=True)
    new = torch.ones_like(hashes, dtype=torch.bool)
    same = 1 + (hashes[1:] == hashes[:-1]).nonzero()[:, 0]
    new[same] = (points[order[same]] != points[order[same - 1]]).any(dim=1)
    run = new.cumsum(0) - 1
    head = new.nonzero()[:, 0][run]
    surplus, first = torch.empty_like(new), torch.empty_like(order)
    surplus[order] = torch.arange(len(order), device=order.device) - head >= max_copies
    first[order] = order[head]
    return surplus, first
