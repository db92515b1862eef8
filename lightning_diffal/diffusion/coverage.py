"""Greedy choice of the points whose walks cover most of what is uncertain."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
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


class GreedyCoverage:
    """The points that raise F(L) = Σ_i U_i (1 - exp(-λ Σ_{l∈L} S_il)) most, one after another.

    With `left` = U exp(-λ Σ_{l∈L} S_il), 0 in L, the gain of j is Σ_i left_i (1 - exp(-λ S_ij)). It only falls as
    points are chosen. So what it was is an upper bound, and only points with a bound above the best gain are computed
    (lazy greedy). Bounds come from, the cheapest first:

    1. λ [Sᵀ left]_j, since 1 - e⁻ˣ ≤ x, less x - (1 - e⁻ˣ) at the neighbors, with a lower bound of x = λ S_ij there;
    2. columns without walks through nodes with little S, and again 1 - e⁻ˣ ≤ x for what they leave out;
    3. the whole column: the gain itself.

    The result is that of computing all gains every time, to the last tie: gains are compared in whole units, and of
    equal ones the lowest index is chosen.

    Args:
        weight: U.
        labeled: L at first. U is 0 there.
        rate: λ.

    Cost: O(t · edges) once, then columns: `computed` counts those of each kind. Memory: 70 bytes a node beside the
    walk's, 200 MB, and at most 150 MB of columns that are kept.
    Reference: Minoux, Accelerated greedy algorithms for maximizing submodular set functions, 1978.
    """

    def __init__(self, walk: LazyWalk, weight: Float[Tensor, " n"], labeled: Int[Tensor, " m"], rate: float) -> None:
        self.walk, self.rate = walk, rate
        known = torch.zeros_like(weight)
        known[labeled] = 1
        self.left = weight * torch.exp(-rate * walk.times(known)) * (1 - known)
        self.unit = UNIT * float(self.left.sum()) or 1.0
        # The linear bound. The last digits of the products are rounded up.
        self.linear, self.first_left = rate * walk.transposed_times(self.left) * (1 + UNIT), self.left.clone()
        self.bound = torch.cat([self.round_up(gain) for gain in self.first_bounds()])
        self.bound[labeled] = -1
        self.num_chosen = 0
        self.drop_below = list(dict.fromkeys(min(cover / rate, MAX_DROPPED) for cover in NEGLIGIBLE))
        # Of the last column of each node: which kind it was, whether it was complete, how much it may leave out of the
        # gain, and how many points were chosen when the bound was lowered by it.
        self.kind, self.lowered_at = torch.zeros_like(self.bound), torch.full_like(self.bound, -1)
        self.complete = torch.zeros_like(self.bound, dtype=torch.bool)
        self.left_out = torch.zeros_like(self.linear)
        self.columns = SparseRows(walk.num_nodes, weight.device)
        self.computed = [0] * len(self.drop_below)
        self.block_width = list(FIRST_COLUMNS)

    def first_bounds(self) -> Iterator[Float[Tensor, " b"]]:
        for nodes, edges, chance in self.walk.edge_bounds():
            cover = self.rate * chance
            excess = self.left[self.walk.col[edges]] * (cover + torch.expm1(-cover))
            yield self.linear[nodes] - torch.segment_reduce(excess, "sum", lengths=self.walk.lengths(nodes))

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
        gain = self.bound[best].to(self.left.dtype) * self.unit
        column, _ = self.walk.columns(best)
        self.left[column.col] *= torch.exp(-self.rate * column.value)
        self.left[best] = 0
        self.bound[best] = -1
        self.num_chosen += 1
        return best, gain

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
        nodes = nodes[~stored]
        while len(nodes):
            some, nodes = nodes[: self.block_width[kind]], nodes[self.block_width[kind] :]
            column, complete = self.walk.columns(some, self.drop_below[kind])
            self.computed[kind] += len(some)
            fitting = BLOCK_ENTRIES * len(some) // len(column.col)
            self.block_width[kind] = max(1, min(MOST_COLUMNS, fitting, 2 * self.block_width[kind]))
            cover = self.rate * column.value
            self.left_out[some] = self.linear[some] - column.sum(self.first_left[column.col] * cover)
            self.kind[some], self.complete[some] = kind, complete
            column = Entries(column.length, column.col, -torch.expm1(-cover))
            self.lower_to(some, column)
            if self.columns.num_entries + len(column.col) <= STORED_ENTRIES:
                self.columns[some] = column
            elif anew:  # the one of the kind before is of no use any more
                self.columns[some] = Entries(torch.zeros_like(some), column.col[:0], column.value[:0])

    def lower_to(self, nodes: Int[Tensor, " b"], column: Entries) -> None:
        """Lower the bounds of these nodes to what their columns give, with what these may leave out."""
        gain = column.sum(self.left[column.col] * column.value)
        bound = torch.minimum(self.bound[nodes], self.round_up(gain + self.left_out[nodes]))
        self.bound[nodes] = torch.where(self.complete[nodes], (gain / self.unit).round().long(), bound)
        self.lowered_at[nodes] = self.num_chosen
