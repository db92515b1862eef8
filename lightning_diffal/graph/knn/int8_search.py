"""All distances as products of 8-bit integers; only where those cannot rule a point out, in float32."""

import threading

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.knn.brute_force import nearest_by_products
from lightning_diffal.graph.knn.pair_distances import pair_distances
from lightning_diffal.numerics.contraction import contract
from lightning_diffal.numerics.int8 import MAX_DIMENSIONS, has_fast_int8, quantize
from lightning_diffal.numerics.precision import search_error
from lightning_diffal.numerics.ragged import run_starts
from lightning_diffal.numerics.sparse import sampled_products
from lightning_diffal.numerics.threads import run_parallel
from lightning_diffal.numerics.topk import GROUP

# Rows and columns of a tile: the largest that stay in the cache.
HEIGHT, WIDTH = 128, 1024
# In fewer dimensions or points, float32 is as fast; in more dimensions an int32 might not hold the sums.
MIN_DIMENSIONS, MIN_POINTS = 97, 2048
# The time of a product in 8-bit integers, as a fraction of that in float32.
INT8_COST = 0.35
# Where more groups of points than this remain for each row, one product in float32 is faster.
MAX_HITS = 400


def int8_search(
    points: Float[Tensor, "n d"],
    rows: Int[Tensor, " r"],
    count: int,
    progress: Progress,
    basis: Float[Tensor, "d m"] | None = None,
) -> tuple[Int[Tensor, "r count"], Float[Tensor, " r"]]:
    """The `count` nearest points of each row, itself among them, in no order, and what the float32 error grows with.

    With a basis, the integers are those of the points in it. Cost: r n distances in 8-bit integers, and in float32
    those that remain: of trained features about 30 for each row, of white noise 50.
    """
    search = Int8Search(points, count, basis)
    found = torch.empty(len(rows), count, dtype=torch.long, device=points.device)
    spread = torch.empty_like(points[rows, 0])

    def search_part(start: int) -> None:
        part = slice(start, start + HEIGHT)
        found[part], spread[part] = search(rows[part])

    run_parallel(search_part, range(0, len(rows), HEIGHT), points.device, progress)
    return found, spread


def prefers_int8(points: Float[Tensor, "n d"]) -> bool:
    """Whether `int8_search` is faster than `brute_force` for these points."""
    n, d = points.shape
    suits = points.device.type == "cpu" and n >= MIN_POINTS and MIN_DIMENSIONS <= d <= MAX_DIMENSIONS
    return suits and has_fast_int8()


class Int8Search:
    """The `count` nearest of all points, for blocks of rows."""

    def __init__(self, points: Float[Tensor, "n d"], count: int, basis: Float[Tensor, "d m"] | None) -> None:
        self.size, self.count, self.buffers = len(points), count, threading.local()
        # Tiles of equal width, padded with points at infinity.
        tiles = -(-len(points) // WIDTH)
        self.width = GROUP * -(-len(points) // (tiles * GROUP))
        missing = tiles * self.width - len(points)
        self.points = torch.nn.functional.pad(points, (0, 0, 0, missing))
        self.half_square = self.points.square().sum(dim=1) / 2
        self.codes = quantize(self.points if basis is None else contract(self.points, basis))
        self.half_code = self.codes.square / 2
        self.half_square[len(points) :] = self.half_code[len(points) :] = float("inf")
        self.groups = self.width // GROUP  # of a tile
        self.group_error = self.codes.error.view(tiles, GROUP, self.groups).amax(dim=1).flatten()

    def __call__(self, rows: Int[Tensor, " b"]) -> tuple[Int[Tensor, "b count"], Float[Tensor, " b"]]:
        points, error, square = self.points, self.codes.error, self.codes.square
        half, minima = self.half_distances(rows)
        # The true distances of the nearest by these products bound how far the last candidate can be, ...
        column = self.members(minima.topk(min(self.count, minima.shape[1]), largest=False, sorted=False).indices)
        value = half.gather(1, column.flatten(1))
        first = column.flatten(1).gather(1, value.topk(self.count, largest=False, sorted=False).indices)
        # ... and |s_x q_x - s_y q_y| ≤ last + e_x + e_y for all that are as near.
        reach = (self.farthest(rows, first).sqrt() + error[rows])[:, None]
        own_square = square[rows, None]
        row, group = (minima.mul_(2).add_(own_square) <= (reach + self.group_error).square_()).nonzero().unbind(dim=1)
        if len(row) > MAX_HITS * len(rows):
            found = nearest_by_products(points[rows], points, self.half_square, self.count)
            return found, (2 * self.half_square[rows]).sqrt()
        column = self.members(group)
        near = 2 * half[row[:, None], column] + own_square[row] <= (reach[row] + error[column]).square()
        row, column = row[:, None].expand_as(column)[near], column[near]
        return self.nearest_of(rows, row, column), torch.zeros_like(reach[:, 0])

    def farthest(self, rows: Int[Tensor, " b"], column: Int[Tensor, "b m"]) -> Float[Tensor, " b"]:
        """The squared distance of the farthest of these points of each row, or a little more."""
        size = torch.full_like(rows, column.shape[1])
        products = sampled_products(self.points[rows], self.points, size, column.flatten())
        half = (self.half_square[column] - products.view_as(column)).amax(dim=1)
        norm, square = (2 * self.half_square[rows]).sqrt(), 2 * (half + self.half_square[rows]).clamp_min_(0)
        return square + search_error(norm, norm, square, self.points.shape[1])

    def nearest_of(
        self, rows: Int[Tensor, " b"], row: Int[Tensor, " e"], column: Int[Tensor, " e"]
    ) -> Int[Tensor, "b count"]:
        """Of pairs (row, column), sorted by row, the `count` nearest columns of each row; `row` counts from 0."""
        size = torch.bincount(row, minlength=len(rows))
        # Side by side, to take the nearest of each row.
        place = torch.arange(len(row), device=rows.device) - run_starts(size)[row]
        table = self.points.new_full((len(rows), int(size.amax())), float("inf"))
        # From differences, whose error does not grow with any norm: few rows are uncertain.
        table[row, place] = pair_distances(self.points, rows[row], column)
        index = torch.zeros_like(table, dtype=torch.long)
        index[row, place] = column
        return index.gather(1, table.topk(self.count, largest=False, sorted=False).indices)

    def half_distances(self, rows: Int[Tensor, " b"]) -> tuple[Float[Tensor, "b p"], Float[Tensor, "b g"]]:
        """|s_x q_x - s_y q_y|²/2, less |s_x q_x|²/2, of all points; and its minimum for each group of points."""
        code, scale, own_scale = self.codes.code, self.codes.scale, self.codes.scale[rows, None]
        own, tiles, height = code[rows], len(code) // self.width, len(rows)
        if not hasattr(self.buffers, "half"):
            # One for all blocks of a thread: fresh pages take the system longer than a product takes.
            self.buffers.half = self.points.new_empty(HEIGHT, tiles, self.width)
        half = self.buffers.half[:height]
        minima = half.new_empty(height, tiles, self.groups)
        product = half.new_empty(height, self.width, dtype=torch.int32)
        tile = half.new_empty(height, self.width)
        for i in range(tiles):
            part = slice(i * self.width, (i + 1) * self.width)
            torch._int_mm(own, code[part].T, out=product)
            torch.addcmul(self.half_code[part], tile.copy_(product).mul_(own_scale), scale[part], value=-1, out=tile)
            half[:, i] = tile
            torch.amin(tile.view(height, GROUP, self.groups), dim=1, out=minima[:, i])
        return half.flatten(1), minima.flatten(1)

    def members(self, group: Int[Tensor, "*s"]) -> Int[Tensor, "*s m"]:
        """The columns of each group: every `groups`-th of its tile."""
        first = group // self.groups * self.width + group % self.groups
        return first[..., None] + torch.arange(0, self.width, self.groups, device=group.device)
