"""The search by 8-bit products of all pairs, each pair once: y is as far from x as x is from y.

A search of a random sample says about how far the last neighbor of each point will be: its radius. Then, tile by tile,
all pairs are kept that may be within the radius of one of their points. Where enough of those kept are truly within it,
no neighbor was left out; the few other points are searched again, without a radius.
"""

import threading
from math import comb

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.arguments import Progress
from lightning_diffal.graph.knn.int8_rows import HEIGHT, MAX_HITS, Int8Rows
from lightning_diffal.numerics.ragged import run_starts
from lightning_diffal.numerics.threads import run_parallel
from lightning_diffal.numerics.topk import GROUP, topk_grouped

# Points of the sample, at least, or this fraction of the pool. More make the radii tighter, and take longer.
MIN_SAMPLE, SAMPLED = 2048, 1 / 16
# The fraction of the points whose radius may turn out to be too small.
MISSED = 0.005
# Of so many blocks of rows, one is used to estimate how many pairs will be kept.
ESTIMATED = 8
# More pairs than this are not kept in memory.
MAX_KEPT = 2**26

# What was kept for a block of rows: the row within the block and half the squared distance as bits; and the column.
Kept = list[tuple[Tensor, Tensor]]


def symmetric_search(search: Int8Rows, progress: Progress) -> tuple[Int[Tensor, "n count"], Float[Tensor, " n"]] | None:
    """The nearest points of each, itself among them, in no order, and what the float32 error grows with.

    None where too many pairs would be kept. Cost: n²/2 distances in 8-bit integers. Memory besides the result: 12 bytes
    for each pair kept, 200 to 250 of a point of white noise.
    """
    radius, expected = guess_radii(search)
    if expected > min(MAX_HITS, MAX_KEPT / search.size):
        return None
    kept = near_pairs(search, radius, progress)
    found = torch.empty(search.size, search.count, dtype=torch.long, device=radius.device)
    spread = torch.zeros_like(radius[: search.size])
    error = search.codes.error

    def finish(block: int) -> None:
        rows = torch.arange(block * search.width, min((block + 1) * search.width, search.size), device=radius.device)
        key, column = (torch.cat(part) for part in zip(*kept[block], strict=True))
        kept[block].clear()
        key, order = key.sort()
        column, row, half = column[order].long(), key >> 32, key.to(torch.int32).view(torch.float32)
        # The nearest by the products come first in each run; all are kept that are as near as the last of these.
        size = torch.bincount(row, minlength=len(rows))
        enough = size >= search.count
        first = enough[row] & (torch.arange(len(row), device=row.device) - run_starts(size)[row] < search.count)
        distance = torch.empty_like(half)
        distance[first] = search.distances(rows, enough * search.count, column[first])
        last = torch.full_like(radius[rows], float("inf"))
        farthest = distance[first].view(-1, search.count).amax(dim=1)
        last[enough] = (farthest + search.error_of(rows[enough], farthest)).sqrt()
        proven = last <= radius[rows]
        near = proven[row] & (2 * half <= ((last + error[rows])[row] + error[column]).square())
        rest = near & ~first
        distance[rest] = search.distances(rows, torch.bincount(row[rest], minlength=len(rows)), column[rest])
        if proven.any():
            row = (proven.cumsum(0) - 1)[row[near]]
            found[rows[proven]], spread[rows[proven]] = search.nearest_of(
                rows[proven], row, column[near], distance[near]
            )
        again = rows[~proven]
        for start in range(0, len(again), HEIGHT):
            part = again[start : start + HEIGHT]
            found[part], spread[part] = search(part)

    run_parallel(finish, range(len(kept)), radius.device)
    return found, spread


def guess_radii(search: Int8Rows) -> tuple[Float[Tensor, " p"], float]:
    """A distance for each point within which its nearest probably are, and how many pairs of a point that will keep."""
    codes, n = search.codes, search.size
    generator = torch.Generator(device=codes.code.device).manual_seed(0)
    size = min(max(MIN_SAMPLE, int(SAMPLED * n)), n) // GROUP * GROUP
    drawn = torch.randperm(n, generator=generator, device=codes.code.device)[:size]
    number = rank_in_sample(search.count, size / n)
    code, scale, half, error = codes.code[drawn], codes.scale[drawn], search.half_code[drawn], codes.error[drawn]
    radius, fraction = torch.zeros_like(codes.scale), []

    def guess(start: int) -> None:
        rows = torch.arange(start, min(start + HEIGHT, n), device=code.device)
        product = torch._int_mm(codes.code[rows], code.T).float().mul_(codes.scale[rows, None])
        tile = torch.addcmul(half, product, scale, value=-1).add_(search.half_code[rows, None])
        radius[rows] = search.farthest(rows, drawn[topk_grouped(tile, number)]).sqrt()
        if start % (ESTIMATED * HEIGHT) == 0:
            limit = half_square((radius + codes.error)[rows, None] + error)
            fraction.append(float((tile <= limit).float().mean()))

    run_parallel(guess, range(0, n, HEIGHT), code.device)
    return radius, n * sum(fraction) / len(fraction)


def rank_in_sample(count: int, fraction: float) -> int:
    """The m for which m or more of the `count` nearest are in a sample of that fraction with probability ≤ MISSED.

    Elsewhere the m-th nearest in the sample is as far as the last of the nearest, or farther.
    """
    number, chance = 0, 1.0  # that `number` or more are there
    while chance > MISSED and number < count:
        chance -= comb(count, number) * fraction**number * (1 - fraction) ** (count - number)
        number += 1
    return number


def near_pairs(search: Int8Rows, radius: Float[Tensor, " p"], progress: Progress) -> list[Kept]:
    """For each block of rows the pairs that may be within the radius of the row."""
    codes, width, groups = search.codes, search.width, search.groups
    blocks, buffers = len(codes.code) // width, threading.local()
    code, scale, half = (part.view(blocks, width, -1) for part in (codes.code, codes.scale, search.half_code))
    reach, group_error = (radius + codes.error).view(blocks, width), search.group_error.view(blocks, groups)
    member = torch.arange(0, width, groups, device=radius.device)
    kept: list[Kept] = [[] for _ in range(blocks)]

    def keep(tile: Tensor, row: Tensor, group: Tensor, i: int, j: int) -> None:
        """Keep what is near enough in these groups of columns of block j."""
        value = tile[row[:, None], group[:, None] + member]
        limit = half_square(reach[i][row] + group_error[j][group])
        hit, place = (value <= limit[:, None]).nonzero().unbind(dim=1)
        # The bits of non-negative floats sort as the floats do.
        key = (row[hit] << 32) | value[hit, place].clamp_min_(0).view(torch.int32)
        kept[i].append((key, (group[hit] + member[place] + j * width).int()))

    def compare(i: int) -> None:
        if not hasattr(buffers, "tile"):
            # One for all tiles of a thread: fresh pages take the system longer than a product takes.
            buffers.product = code.new_empty(width, width, dtype=torch.int32)
            buffers.tile = radius.new_empty(width, width)
        for j in range(i, blocks):
            torch._int_mm(code[i], code[j].T, out=buffers.product)
            tile = buffers.tile.copy_(buffers.product).mul_(scale[i])
            torch.addcmul(half[j].T, tile, scale[j].T, value=-1, out=tile).add_(half[i])
            minima = tile.view(width, GROUP, groups).amin(dim=1)
            row, group = (minima <= half_square(reach[i, :, None] + group_error[j])).nonzero().unbind(dim=1)
            keep(tile, row, group, i, j)
            if i < j:
                minima = tile.view(GROUP, groups, width).amin(dim=0)
                group, row = (minima <= half_square(group_error[i, :, None] + reach[j])).nonzero().unbind(dim=1)
                keep(tile.T, row, group, j, i)

    run_parallel(compare, range(blocks), radius.device, progress)
    return kept


def half_square(values: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    return values.square_().mul_(0.5)
