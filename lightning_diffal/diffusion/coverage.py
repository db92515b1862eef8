"""Greedy choice of the points whose walks cover most of what is uncertain."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.lazy_walk import LazyWalk
from lightning_diffal.diffusion.sparse_rows import Entries, SparseRows
from lightning_diffal.numerics.highest import HighestFirst

# Gains are compared in units of 2⁻⁴⁰ of all there is to gain, about 10⁻¹². That is far above what the order of a sum
# changes, so equal means equal on every device and with any number of threads, and the lower index decides.
UNIT = 2.0**-40
# Columns are computed first with walks that stay where λ S is below this, then whole.
NEGLIGIBLE = (4.0, 1.0, 0.0)
# But walks go on from where S is at least this: few nodes are, however small λ.
MAX_DROPPED = 2.0**-6
# Bounds lowered together at first, by columns of each kind, and at most; of these so many columns at a time.
FIRST_COLUMNS, MOST_COLUMNS, BLOCK_COLUMNS = (64, 16, 4), 2**15, 2**11
# Entries of columns computed together, about: 200 MB with what is needed on the way.
BLOCK_ENTRIES = 2**22
# Entries of columns that are kept for the next choices.
STORED_ENTRIES = 2**23
# All bounds are lowered again when so many entries of columns were computed, for each edge and step: about as long as
# that takes.
ENTRIES_PER_EDGE = 0.1
# Bounds of nodes whose linear one is not below this share of what it was stay as they are.
MUCH_LOWER = 0.99
# Of the interval a slope is in: to a millionth.
HALVINGS = 20


class GreedyCoverage:
    """The points that raise F(L) = Σ_i U_i max_{l∈L} (1 - exp(-λ S_il)) most, one after another.

    With `cover` the maximum at each node so far, the gain of j is Σ_i U_i max(0, 1 - exp(-λ S_ij) - cover_i), U = 0 in
    L. It only falls as points are chosen. So what it was is an upper bound, and only points with a bound above the best
    gain are computed (lazy greedy). Bounds come from, the cheapest first:

    1. λ [Sᵀ(U s)]_j, with s_i x the `steepest` line that bounds max(0, 1 - e⁻ˣ - cover_i) for every x, less its excess
       at the neighbors, with a lower bound of x = λ S_ij there;
    2. columns with walks that stay at nodes with little S; what these leave out of x counts 1 - cover_i at most;
    3. the whole column: the gain itself.

    The result is that of computing all gains every time, to the last tie: gains are compared in whole units, and of
    equal ones the lowest index is chosen.

    Args:
        weight: U.
        labeled: L at first. Their U counts as 0.
        rate: λ.

    The first kind of bound is lowered again, for all points together, whenever columns have cost as much as that since:
    after many choices few points are still as good as they were.

    Cost: O(t · edges) and the columns of L once, then columns: `computed` counts those of each kind. Memory: 130 bytes
    a node beside the walk's, 200 MB, and at most 300 MB of columns that are kept.
    Reference: Minoux, Accelerated greedy algorithms for maximizing submodular set functions, 1978.
    """

    def __init__(self, walk: LazyWalk, weight: Float[Tensor, " n"], labeled: Int[Tensor, " m"], rate: float) -> None:
        self.walk, self.rate = walk, rate
        self.weight, self.cover = weight.clone(), torch.zeros_like(weight)
        self.weight[labeled] = 0
        self.drop_below = list(dict.fromkeys(min(cover / rate, MAX_DROPPED) for cover in NEGLIGIBLE))
        self.computed = [0] * len(self.drop_below)
        self.block_width = list(FIRST_COLUMNS)
        for _, column, _ in self.column_blocks(labeled, -1):
            self.raise_cover(column)
        # Of the cover when all bounds were lowered last, for each node: the cover, what was left to gain, the slope of
        # the line that bounds the gain, and λ Sᵀ times these two; of the latter, when its own bound was lowered.
        self.cover_then, self.left = torch.full_like(weight, -1), torch.empty_like(weight)
        self.slope, self.linear = torch.empty_like(weight), torch.empty_like(weight)
        self.steep = torch.full_like(weight, float("inf"))
        self.unit = UNIT * float((self.weight * (1 - self.cover)).sum()) or 1.0
        bound = torch.full_like(self.cover, torch.iinfo(torch.long).max, dtype=torch.long)
        bound[labeled] = -1
        self.bound = HighestFirst(bound)
        self.lower_all()
        self.num_chosen = 0
        # Of the last column of each node: which kind it was, whether it was complete, how much it may leave out of the
        # gain, and how many points were chosen when the bound was lowered by it.
        self.kind, self.lowered_at = torch.zeros_like(bound), torch.full_like(bound, -1)
        self.complete = torch.zeros_like(bound, dtype=torch.bool)
        self.left_out = torch.zeros_like(self.cover)
        self.columns = SparseRows(walk.num_nodes, weight.device)

    def lower_all(self) -> None:
        """Lower all bounds to those of the cover there is now, without any column."""
        changed = (self.cover > self.cover_then).nonzero()[:, 0]
        self.slope[changed] = steepest(1 - self.cover[changed])
        self.cover_then.copy_(self.cover)
        torch.mul(self.weight, 1 - self.cover, out=self.left)
        both = torch.stack([self.left, self.weight * self.slope], dim=1)
        # The last digits of the products are rounded up.
        self.linear, steep = (self.rate * self.walk.transposed_times(both) * (1 + UNIT)).unbind(dim=1)
        lower = (steep < MUCH_LOWER * self.steep).nonzero()[:, 0]
        self.steep[lower] = steep[lower]
        for nodes, near in self.walk.edge_bounds(lower):
            slope, cover = self.slope[near.col], self.rate * near.value
            left = torch.exp(-cover)
            # The line is above the gain by so much at least, from where it touches it.
            excess = slope * cover - (1 - self.cover[near.col] - left)
            excess = torch.where(left < slope, self.weight[near.col] * excess, 0.0)
            gain = steep[nodes] - near.sum(excess)
            self.bound[nodes] = torch.minimum(self.bound[nodes], self.round_up(gain))
        self.entries_since = 0

    def round_up(self, gain: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """An upper bound in units, one more than needed since sums have rounding errors. Nothing is exact."""
        return torch.where(gain > 0, gain / self.unit + 1, 0.0).ceil().long()

    def choose_next(self) -> tuple[Int[Tensor, " 1"], Float[Tensor, " 1"]]:
        """Add the point with the largest gain to L. Returns it and its gain."""
        if self.entries_since > ENTRIES_PER_EDGE * len(self.walk.hops) * len(self.walk.col):
            self.lower_all()
        width, best_gain = list(FIRST_COLUMNS), 0
        while True:
            best = self.bound.argmax()
            current = int(self.lowered_at[best]) == self.num_chosen
            if int(self.bound[best]) == 0 or (current and bool(self.complete[best])):
                break
            kind = int(self.kind[best]) + current
            rows = self.highest(best, width[kind], best_gain, current)
            width[kind] = min(2 * width[kind], MOST_COLUMNS)
            self.lower(rows, kind, current)
            complete = self.complete[rows]
            if bool(complete.any()):
                best_gain = max(best_gain, int(self.bound[rows[complete]].amax()))
        gain = self.bound[best].to(self.weight.dtype) * self.unit
        column, _ = self.walk.columns(best)
        self.raise_cover(column)
        self.weight[best] = 0
        self.bound[best] = -1
        self.num_chosen += 1
        return best, gain

    def raise_cover(self, column: Entries) -> None:
        """The cover of each node by these columns, where it is more than before."""
        self.cover.scatter_reduce_(0, column.col.long(), -torch.expm1(-self.rate * column.value), "amax")

    def highest(self, best: Int[Tensor, " 1"], count: int, above: int, current: bool) -> Int[Tensor, " b"]:
        """The best point, and those of the `count` highest bounds that have to be lowered in the same way."""
        rows = self.bound.topk(count)
        same = (self.lowered_at[rows] == self.num_chosen) == current
        same &= (self.kind[rows] == self.kind[best]) & (self.bound[rows] > above) & (rows != best)
        if current:
            same &= ~self.complete[rows]
        return torch.cat([best, rows[same]])

    def lower(self, nodes: Int[Tensor, " b"], kind: int, anew: bool) -> None:
        """Lower the bounds of these nodes by their columns of this kind: stored ones, unless they are computed anew."""
        stored = (self.columns.length[nodes] > 0) & (not anew)
        if bool(stored.any()):
            self.lower_to(nodes[stored], self.columns[nodes[stored]])
        nodes = nodes[~stored]
        # Columns of near nodes have most nodes in common: three times as fast, since these stay in the cache.
        for some, column, complete in self.column_blocks(nodes[self.walk.place[nodes].argsort()], kind):
            self.computed[kind] += len(some)
            self.entries_since += len(column.col)
            cover = self.rate * column.value
            self.left_out[some] = self.linear[some] - column.sum(self.left[column.col] * cover)
            self.kind[some], self.complete[some] = kind, complete
            covered = Entries(column.length, column.col, -torch.expm1(-cover))
            self.lower_to(some, covered)
            if self.columns.num_entries + len(column.col) <= STORED_ENTRIES:
                self.columns[some] = covered
            elif anew:  # the one of the kind before is of no use any more
                self.columns[some] = Entries(torch.zeros_like(some), column.col[:0], column.value[:0])

    def column_blocks(
        self, nodes: Int[Tensor, " b"], kind: int
    ) -> Iterator[tuple[Int[Tensor, " c"], Entries, Bool[Tensor, " c"]]]:
        """The columns of this kind, some nodes at a time: those, their columns, and whether each is complete."""
        while len(nodes):
            some, nodes = nodes[: self.block_width[kind]], nodes[self.block_width[kind] :]
            column, complete = self.walk.columns(some, self.drop_below[kind])
            fitting = BLOCK_ENTRIES * len(some) // len(column.col)
            self.block_width[kind] = max(1, min(BLOCK_COLUMNS, fitting, 2 * self.block_width[kind]))
            yield some, column, complete

    def lower_to(self, nodes: Int[Tensor, " b"], column: Entries) -> None:
        """Lower the bounds of these nodes to what their columns give, with what these may leave out."""
        gain = column.sum(self.weight[column.col] * (column.value - self.cover[column.col]).clamp_(min=0))
        bound = torch.minimum(self.bound[nodes], self.round_up(gain + self.left_out[nodes]))
        self.bound[nodes] = torch.where(self.complete[nodes], (gain / self.unit).round().long(), bound)
        self.lowered_at[nodes] = self.num_chosen


def steepest(left: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The smallest s with s x ≥ left - e⁻ˣ for every x ≥ 0, rounded up.

    The line touches the curve where e⁻ˣ = s, so that s (1 - ln s) = left. The left side rises with s from 0 to 1.
    """
    low, high = torch.zeros_like(left), left.clone()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = middle - torch.xlogy(middle, middle) < left
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high
