"""Greedy choice of the points whose walks cover most of what is uncertain."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.lazy_walk import LazyWalk
from lightning_diffal.diffusion.sparse_rows import Entries, SparseRows

# Gains are compared in units of 2⁻⁴⁰ of all there is to gain, about 10⁻¹². That is far above what the order of a sum
# changes, so equal means equal on every device and with any number of threads, and the lower index decides.
UNIT = 2.0**-40
# Columns are computed first without walks that go on from where λ S is below this, then whole. By measurement a
# hundredth of the candidates remain, at half of the cost; a third kind of column, rougher or finer, saved nothing.
NEGLIGIBLE = (1.0, 0.0)
# But never without walks from where S is at least this: few nodes are, however small λ.
MAX_DROPPED = 2.0**-8
# Bounds lowered together at first, by columns of each kind, and at most.
FIRST_COLUMNS, MOST_COLUMNS = (64, 4), 2048
# Entries of columns computed together, about: 200 MB with what is needed on the way.
BLOCK_ENTRIES = 2**22
# Entries of columns that are kept for the next choices.
STORED_ENTRIES = 2**22
# Of the interval a slope is in: to a millionth.
HALVINGS = 20


class GreedyCoverage:
    """The points that raise F(L) = Σ_i U_i max_{l∈L} (1 - exp(-λ S_il)) most, one after another.

    With `cover` the maximum at each node so far, the gain of j is Σ_i U_i max(0, 1 - exp(-λ S_ij) - cover_i), U = 0 in
    L. It only falls as points are chosen. So what it was is an upper bound, and only points with a bound above the best
    gain are computed (lazy greedy). Bounds come from, the cheapest first:

    1. λ [Sᵀ(U s)]_j, with s_i x the `steepest` line that bounds max(0, 1 - e⁻ˣ - cover_i) for every x, less its excess
       at the neighbors, with a lower bound of x = λ S_ij there;
    2. columns without walks through nodes with little S; what these leave out of x counts 1 - cover_i at most;
    3. the whole column: the gain itself.

    The result is that of computing all gains every time, to the last tie: gains are compared in whole units, and of
    equal ones the lowest index is chosen.

    Args:
        weight: U.
        labeled: L at first. Their U counts as 0.
        rate: λ.

    Cost: O(t · edges) and the columns of L once, then columns: `computed` counts those of each kind. Memory: 90 bytes a
    node beside the walk's, 200 MB, and at most 150 MB of columns that are kept.
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
        # What is left to gain at each node, at first. The last digits of the products are rounded up.
        self.first_left = self.weight * (1 - self.cover)
        self.linear = rate * walk.transposed_times(self.first_left) * (1 + UNIT)
        self.unit = UNIT * float(self.first_left.sum()) or 1.0
        self.bound = torch.cat([self.round_up(gain) for gain in self.first_bounds()])
        self.bound[labeled] = -1
        self.num_chosen = 0
        # Of the last column of each node: which kind it was, whether it was complete, how much it may leave out of the
        # gain, and how many points were chosen when the bound was lowered by it.
        self.kind, self.lowered_at = torch.zeros_like(self.bound), torch.full_like(self.bound, -1)
        self.complete = torch.zeros_like(self.bound, dtype=torch.bool)
        self.left_out = torch.zeros_like(self.linear)
        self.columns = SparseRows(walk.num_nodes, weight.device)

    def first_bounds(self) -> Iterator[Float[Tensor, " b"]]:
        slope = steepest(1 - self.cover)
        linear = self.rate * self.walk.transposed_times(self.weight * slope) * (1 + UNIT)
        for nodes, edges, chance in self.walk.edge_bounds():
            col = self.walk.col[edges]
            cover = self.rate * chance
            # The line is above the gain by so much at least, from where it touches it.
            excess = slope[col] * cover - (1 - self.cover[col] - torch.exp(-cover))
            excess = torch.where(torch.exp(-cover) < slope[col], self.weight[col] * excess, 0.0)
            yield linear[nodes] - torch.segment_reduce(excess, "sum", lengths=self.walk.lengths(nodes))

    def round_up(self, gain: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """An upper bound in units, one more than needed since sums have rounding errors. Nothing is exact."""
        return torch.where(gain > 0, gain / self.unit + 1, 0.0).ceil().long()

    def choose_next(self) -> tuple[Int[Tensor, " 1"], Float[Tensor, " 1"]]:
        """Add the point with the largest gain to L. Returns it and its gain."""
        width, best_gain = list(FIRST_COLUMNS), 0
        while True:
            best = self.bound.argmax(dim=0, keepdim=True)  # the first of equal ones, by its documentation
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
        bound, rows = self.bound.topk(min(count, len(self.bound)))
        same = (self.lowered_at[rows] == self.num_chosen) == current
        same &= (self.kind[rows] == self.kind[best]) & (bound > above) & (rows != best)
        if current:
            same &= ~self.complete[rows]
        return torch.cat([best, rows[same]])

    def lower(self, nodes: Int[Tensor, " b"], kind: int, anew: bool) -> None:
        """Lower the bounds of these nodes by their columns of this kind: stored ones, unless they are computed anew."""
        stored = (self.columns.length[nodes] > 0) & (not anew)
        if bool(stored.any()):
            self.lower_to(nodes[stored], self.columns[nodes[stored]])
        for some, column, complete in self.column_blocks(nodes[~stored], kind):
            self.computed[kind] += len(some)
            cover = self.rate * column.value
            self.left_out[some] = self.linear[some] - column.sum(self.first_left[column.col] * cover)
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
            self.block_width[kind] = max(1, min(MOST_COLUMNS, fitting, 2 * self.block_width[kind]))
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
