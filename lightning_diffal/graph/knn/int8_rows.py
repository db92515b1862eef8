"""Blocks of rows against all points: products of 8-bit integers, and float32 where those cannot rule a point out."""

import threading

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.graph.knn.brute_force import nearest_by_products
from lightning_diffal.graph.knn.candidates import EXTRA_CANDIDATES
from lightning_diffal.graph.knn.pair_distances import pair_distances
from lightning_diffal.numerics.contraction import contract
from lightning_diffal.numerics.int8 import quantize
from lightning_diffal.numerics.precision import search_error
from lightning_diffal.numerics.ragged import side_by_side
from lightning_diffal.numerics.sparse import sampled_products
from lightning_diffal.numerics.threads import run_parallel
from lightning_diffal.numerics.topk import GROUP

# Rows and columns of a tile: the largest that stay in the cache.
HEIGHT, WIDTH = 128, 1024
# Points copied at a time, so that their squares stay in the cache.
COPIED_ROWS = 256
# Where more groups of points than this remain for each row, one product in float32 is faster.
MAX_HITS = 400
# The neighbors are certain where the extra candidates are farther by twice the error, and a little more.
CLEAR = 2.2


class Int8Rows:
    """The `count` nearest of all points, for blocks of rows.

    Args:
        basis: If given, the integers are of the points in it.
        order: If given, row i of the search is row order[i] of the points.
    """

    def __init__(
        self,
        points: Float[Tensor, "n d"],
        count: int,
        basis: Float[Tensor, "d m"] | None,
        order: Int[Tensor, " n"] | None = None,
    ) -> None:
        self.size, self.count, self.buffers = len(points), count, threading.local()
        # Tiles of equal width, padded with points at infinity.
        tiles = -(-len(points) // WIDTH)
        self.width = GROUP * -(-len(points) // (tiles * GROUP))
        missing = tiles * self.width - len(points)
        self.points = points.new_zeros(len(points) + missing, points.shape[1])
        self.half_square = points.new_empty(len(self.points))

        def copy_part(start: int) -> None:
            rows = slice(start, start + COPIED_ROWS)
            part, given = self.points[rows], points[rows] if order is None else points[order[rows]]
            part[: len(given)] = given
            self.half_square[rows] = part.square().sum(dim=1) / 2

        run_parallel(copy_part, range(0, len(self.points), COPIED_ROWS), points.device)
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
            return found, self.norm(rows)
        column = self.members(group)
        near = 2 * half[row[:, None], column] + own_square[row] <= (reach[row] + error[column]).square()
        row, column = row[:, None].expand_as(column)[near], column[near]
        size = torch.bincount(row, minlength=len(rows))
        return self.nearest_of(rows, row, column, self.distances(rows, size, column))

    def farthest(self, rows: Int[Tensor, " b"], column: Int[Tensor, "b m"]) -> Float[Tensor, " b"]:
        """The squared distance of the farthest of these points of each row, or a little more."""
        size = torch.full_like(rows, column.shape[1])
        square = self.distances(rows, size, column.flatten()).view_as(column).amax(dim=1)
        return square + self.error_of(rows, square)

    def distances(
        self, rows: Int[Tensor, " b"], size: Int[Tensor, " b"], column: Int[Tensor, " e"]
    ) -> Float[Tensor, " e"]:
        """Squared distances to the columns, size[0] of them for the first row and so on, wrong by up to `error_of`."""
        products = sampled_products(self.points[rows], self.points, size, column)
        half = self.half_square[rows].repeat_interleave(size).add_(self.half_square[column]).sub_(products)
        return half.clamp_min_(0).mul_(2)

    def error_of(self, rows: Int[Tensor, " b"], square: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        norm = self.norm(rows)
        return search_error(norm, norm, square, self.points.shape[1])

    def norm(self, rows: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        return (2 * self.half_square[rows]).sqrt()

    def nearest_of(
        self, rows: Int[Tensor, " b"], row: Int[Tensor, " e"], column: Int[Tensor, " e"], distance: Float[Tensor, " e"]
    ) -> tuple[Int[Tensor, "b count"], Float[Tensor, " b"]]:
        """Of pairs (row, column), sorted by row, the `count` nearest columns of each row; `row` counts from 0.

        By their `distances` where these are exact enough to be certain of the neighbors, elsewhere from differences,
        whose error does not grow with any norm. The second result is what the error grows with.
        """
        size = torch.bincount(row, minlength=len(rows))
        table = side_by_side(row, size, distance, float("inf"))
        nearest, place = table.topk(self.count, largest=False)
        found = side_by_side(row, size, column, 0).gather(1, place)
        gap = nearest[:, -1] - nearest[:, max(0, self.count - 1 - EXTRA_CANDIDATES)]
        unclear = gap <= CLEAR * self.error_of(rows, nearest[:, -1])
        spread = self.norm(rows).masked_fill_(unclear, 0)
        if unclear.any():
            again = unclear[row]
            row, column, size = (unclear.cumsum(0) - 1)[row[again]], column[again], size[unclear]
            table = side_by_side(row, size, pair_distances(self.points, rows[unclear][row], column), float("inf"))
            place = table.topk(self.count, largest=False, sorted=False).indices
            found[unclear] = side_by_side(row, size, column, 0).gather(1, place)
        return found, spread

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
