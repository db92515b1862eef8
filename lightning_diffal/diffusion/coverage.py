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
# A near column follows no walk from where S is below the smaller of these, the first as λ S. By measurement a tenth of
# the candidates are left then, at a fourth of the cost of whole columns.
NEAR_COVER, NEAR_CHANCE = 1.0, 2.0**-8
# Columns computed together: at first, and at most.
FIRST_NEAR, FIRST_WHOLE, MOST_COLUMNS = 64, 4, 2048
# Entries of columns computed together, about: 200 MB with what is needed on the way.
BLOCK_ENTRIES = 2**22
# Entries of columns that are kept for the next choices.
STORED_ENTRIES = 2**24


class GreedyCoverage:
    """The points that raise F(L) = Σ_i U_i (1 - exp(-λ Σ_{l∈L} S_il)) most, one after another.

    With `left` = U exp(-λ Σ_{l∈L} S_il), 0 in L, the gain of j is Σ_i left_i (1 - exp(-λ S_ij)). It only falls as
    points are chosen. So what it was is an upper bound, and only points with a bound above the best gain are computed
    (lazy greedy). Bounds come from, the cheapest first:

    1. λ [Sᵀ left]_j, since 1 - e⁻ˣ ≤ x, less x - (1 - e⁻ˣ) at the neighbors, with a lower bound of x = λ S_ij there;
    2. a near column, without walks through nodes with little S: for what is left out, the bound is what it was before;
    3. the whole column: the gain itself.

    The result is that of computing all gains every time, to the last tie: gains are compared in whole units, and of
    equal ones the lowest index is chosen.

    Args:
        weight: U.
        labeled: L at first. U is 0 there.
        rate: λ.

    Cost: O(t · edges) once, then columns, as many as `computed` counts. Memory: 56 bytes a node beside the walk's, and
    200 MB.
    Reference: Minoux, Accelerated greedy algorithms for maximizing submodular set functions, 1978.
    """

    def __init__(self, walk: LazyWalk, weight: Float[Tensor, " n"], labeled: Int[Tensor, " m"], rate: float) -> None:
        self.walk, self.rate = walk, rate
        known = torch.zeros_like(weight)
        known[labeled] = 1
        self.left = weight * torch.exp(-rate * walk.times(known)) * (1 - known)
        self.unit = UNIT * float(self.left.sum()) or 1.0
        # An upper bound of each gain when its near column was computed, and what of it came from that column. At first
        # the bound is linear, and so is the part of a column. The last digits of the products are rounded up.
        self.gain = rate * walk.transposed_times(self.left) * (1 + UNIT)
        self.near, self.first_left = torch.full_like(self.gain, float("nan")), self.left.clone()
        self.bound = torch.cat([self.round_up(gain) for gain in self.first_bounds()])
        self.bound[labeled] = -1
        # How many points were chosen when the near or the whole column was last computed.
        self.num_chosen = 0
        self.near_at, self.whole_at = torch.full_like(self.bound, -1), torch.full_like(self.bound, -1)
        self.computed = {"near": 0, "whole": 0}
        self.block_width = FIRST_NEAR
        self.columns = SparseRows(walk.num_nodes, weight.device)
        self.complete = torch.zeros_like(self.bound, dtype=torch.bool)

    def first_bounds(self) -> Iterator[Float[Tensor, " b"]]:
        for nodes, edges, chance in self.walk.edge_bounds():
            cover = self.rate * chance
            excess = self.left[self.walk.col[edges]] * (cover + torch.expm1(-cover))
            yield self.gain[nodes] - torch.segment_reduce(excess, "sum", lengths=self.walk.lengths(nodes))

    def round_up(self, gain: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """An upper bound in units, one more than needed since sums have rounding errors. Nothing is exact."""
        return torch.where(gain > 0, gain / self.unit + 1, 0.0).ceil().long()

    def choose_next(self) -> tuple[Int[Tensor, " 1"], Float[Tensor, " 1"]]:
        """Add the point with the largest gain to L. Returns it and its gain."""
        near, whole, best_gain = FIRST_NEAR, FIRST_WHOLE, 0
        while True:
            best = self.bound.argmax(dim=0, keepdim=True)  # the first of equal ones, by its documentation
            if int(self.bound[best]) == 0 or int(self.whole_at[best]) == self.num_chosen:
                break
            if int(self.near_at[best]) < self.num_chosen:
                self.compute(self.highest(best, near, best_gain, self.near_at), "near")
                near = min(2 * near, MOST_COLUMNS)
            else:
                best_gain = max(best_gain, self.compute(self.highest(best, whole, best_gain, self.whole_at), "whole"))
                whole = min(2 * whole, MOST_COLUMNS)
        gain = self.bound[best].to(self.left.dtype) * self.unit
        column, _ = self.walk.columns(best)
        self.left[column.col] *= torch.exp(-self.rate * column.value)
        self.left[best] = 0
        self.bound[best] = -1
        self.num_chosen += 1
        return best, gain

    def highest(self, best: Int[Tensor, " 1"], count: int, above: int, computed_at: Int[Tensor, " n"]) -> Tensor:
        """The best point, and those of the `count` highest bounds that may have to be computed, too."""
        bound, rows = self.bound.topk(min(count, len(self.bound)))
        needed = (bound > above) & (computed_at[rows] < self.num_chosen) & (rows != best)
        if computed_at is self.whole_at:
            needed &= self.near_at[rows] == self.num_chosen
        return torch.cat([best, rows[needed]])

    def compute(self, nodes: Int[Tensor, " b"], kind: str) -> int:
        """Lower the bounds of these nodes by their near or whole columns. Returns the largest of them."""
        drop_below = min(NEAR_COVER / self.rate, NEAR_CHANCE) if kind == "near" else 0.0
        stored = (self.columns.length[nodes] > 0) & (kind == "near")
        if bool(stored.any()):
            rows = nodes[stored]
            self.lower(rows, self.columns[rows], self.complete[rows], self.near[rows])
        missing = nodes[~stored]
        while len(missing):
            some, missing = missing[: self.block_width], missing[self.block_width :]
            column, complete = self.walk.columns(some, drop_below)
            self.computed[kind] += len(some)
            self.block_width = max(1, min(MOST_COLUMNS, BLOCK_ENTRIES * len(some) // len(column.col)))
            covered = self.rate * column.value
            linear = column.sum(self.first_left[column.col] * covered)
            before = torch.where(self.near_at[some] < 0, linear, self.near[some])
            column = Entries(column.length, column.col, -torch.expm1(-covered))
            self.lower(some, column, complete, before)
            if self.columns.num_entries + len(column.col) <= STORED_ENTRIES:
                self.columns[some], self.complete[some] = column, complete
        return int(self.bound[nodes].amax())

    def lower(
        self, nodes: Int[Tensor, " b"], cover: Entries, complete: Bool[Tensor, " b"], before: Float[Tensor, " b"]
    ) -> None:
        """Lower the bounds of nodes by as much as their near columns give less than `before`, or to their gains."""
        gain = cover.sum(self.left[cover.col] * cover.value)
        self.gain[nodes] = torch.where(complete, gain, self.gain[nodes] + gain - before)
        bound = torch.minimum(self.bound[nodes], self.round_up(self.gain[nodes]))
        self.bound[nodes] = torch.where(complete, (gain / self.unit).round().long(), bound)
        self.near[nodes] = gain
        self.near_at[nodes] = self.num_chosen
        self.whole_at[nodes[complete]] = self.num_chosen
