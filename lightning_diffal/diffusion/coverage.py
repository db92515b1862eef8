"""Greedy choice of the points whose walks cover most of what is uncertain."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.lazy_walk import LazyWalk
from lightning_diffal.diffusion.sparse_rows import Entries
from lightning_diffal.diffusion.stored_columns import StoredColumns
from lightning_diffal.numerics.highest import HighestFirst

# Gains are compared in units of 2⁻⁴⁰ of all there is to gain, about 10⁻¹². That is far above what the order of a sum
# changes, so equal means equal on every device and with any number of threads, and the lower number decides.
UNIT = 2.0**-40
# Columns are computed first with walks that stay where λ S is below this, then whole.
NEGLIGIBLE = (4.0, 1.0, 0.0)
# But walks go on from where S is at least this: few nodes are, however small λ.
MAX_DROPPED = 2.0**-6
# Columns of each kind that are computed together at first, for one choice, then twice as many; but always one for so
# many there are, and one for so many nodes, since products look at all nodes.
FIRST_COLUMNS, COLUMNS_PER_MORE, NODES_PER_COLUMN = (64, 16, 4), 8, 2**11
# Gains that are computed again together at first, for one choice; then twice as many.
FIRST_AGAIN = 16
# Entries of columns computed together, about: 50 MB with what is needed on the way.
BLOCK_ENTRIES = 2**20
# All bounds are lowered again when so many entries of columns were computed, for each edge and step, times the share of
# all there is to gain that was gained since: about as long as that takes, where bounds fall as much as that.
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

    Each node waits for the next of these, in the queue of its `stage`. Columns are computed for many of the highest
    bounds at once: those this choice needs, and of the roughest kind those that the next ones need if gains fall on.

    The result is that of computing all gains every time, to the last tie: gains are compared in whole units, and of
    equal ones the lowest number is chosen.

    Args:
        weight: U.
        labeled: L at first. Their U counts as 0.
        rate: λ.
        number: The number of each node, by default as in the walk: columns are computed three times as fast where
            neighbors are near in memory.

    The first kind of bound is lowered again, for all points together, when that will save as much as it costs: after
    many choices few points are still as good as they were.

    Cost: O(t · edges) and the columns of L once, then columns: `computed` counts those of each kind. Memory: 150 bytes
    a node beside the walk's, 100 MB, and at most 300 MB of columns that are kept.
    Reference: Minoux, Accelerated greedy algorithms for maximizing submodular set functions, 1978.
    """

    def __init__(
        self,
        walk: LazyWalk,
        weight: Float[Tensor, " n"],
        labeled: Int[Tensor, " m"],
        rate: float,
        number: Int[Tensor, " n"] | None = None,
    ) -> None:
        self.walk, self.rate = walk, rate
        self.number = torch.arange(len(weight), device=weight.device) if number is None else number
        self.node = torch.empty_like(self.number)
        self.node[self.number] = torch.arange(len(weight), device=weight.device)
        self.weight, self.cover = weight.clone(), torch.zeros_like(weight)
        self.weight[labeled] = 0
        self.drop_below = list(dict.fromkeys(min(cover / rate, MAX_DROPPED) for cover in NEGLIGIBLE))
        self.last = len(self.drop_below)  # the stage of nodes whose columns are complete
        self.computed = [0] * self.last
        self.block_width = list(FIRST_COLUMNS)
        for _, column, _ in self.column_blocks(labeled.sort().values, -1):
            self.raise_cover(self.covered(column))
        # Of the cover when all bounds were lowered last, for each node: the cover, what was left to gain, the slope of
        # the line that bounds the gain, and λ Sᵀ times these two; of the latter, when its own bound was lowered.
        self.cover_then, self.left = torch.full_like(weight, -1), torch.empty_like(weight)
        self.slope, self.linear = torch.empty_like(weight), torch.empty_like(weight)
        self.steep = torch.full_like(weight, float("inf"))
        self.unit = UNIT * float((self.weight * (1 - self.cover)).sum()) or 1.0
        self.num_chosen = self.entries_since = 0
        self.gained_since = 0.0
        self.gains: list[int] = []
        # Of each node an upper bound of its gain, in units, which columns it was computed from, how much these may
        # leave out, and how many points were chosen then.
        self.bound = torch.full_like(self.number, torch.iinfo(torch.long).max)
        self.bound[labeled] = -1
        self.stage = torch.zeros_like(self.number)
        self.left_out = torch.zeros_like(weight)
        self.lowered_at = torch.full_like(self.number, -1)
        self.queues = [HighestFirst(torch.full_like(self.number, -1)) for _ in range(self.last + 1)]
        self.lower_all()
        self.columns = StoredColumns(walk.num_nodes, weight.device)

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
        for stage, queue in enumerate(self.queues):
            here = (self.stage == stage).nonzero()[:, 0]
            queue[self.number[here]] = self.bound[here]
        self.entries_since, self.gained_since = 0, 0.0

    def round_up(self, gain: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """An upper bound in units, one more than needed since sums have rounding errors. Nothing is exact."""
        return torch.where(gain > 0, gain / self.unit + 1, 0.0).ceil().long()

    def choose_next(self) -> tuple[Int[Tensor, " 1"], Float[Tensor, " 1"]]:
        """Add the point with the largest gain to L. Returns it and its gain."""
        saved = self.entries_since * self.gained_since
        if saved > ENTRIES_PER_EDGE * len(self.walk.hops) * self.walk.num_edges:
            self.lower_all()
        best = self.largest_gain()
        units = self.bound[best]
        self.gains.append(int(units))
        self.gained_since += float(units) * UNIT
        self.columns.bounds_fell_to(int(units))
        stored = int(self.columns.length[best]) > 0
        self.raise_cover(self.columns[best] if stored else self.covered(self.walk.columns(best)[0]))
        self.weight[best] = 0
        self.set_bound(best, torch.full_like(best, -1), self.stage[best])
        self.num_chosen += 1
        return best, units.to(self.weight.dtype) * self.unit

    def largest_gain(self) -> Int[Tensor, " 1"]:
        """The node whose gain is the largest: the highest bounds are lowered until the highest is a gain itself."""
        best_gain = 0 if self.gains else self.likely_gain()
        again, width = FIRST_AGAIN, list(FIRST_COLUMNS)
        while True:
            best, stage = self.highest()
            current = int(self.lowered_at[best]) == self.num_chosen
            if int(self.bound[best]) == 0 or (current and stage == self.last):
                return best
            stored = int(self.columns.length[best]) > 0
            if not current and (stored or stage == self.last):
                nodes = self.computed_before(best, stage, again, stored, best_gain)
                again *= 2
            else:
                width[stage] = max(2 * width[stage], self.walk.num_nodes // NODES_PER_COLUMN)
                nodes = self.not_computed(best, stage, width[stage], best_gain)
            if not current and stored:
                self.lower_to(nodes, self.columns[nodes], self.stage[nodes] == self.last)
            else:
                self.lower(nodes, min(stage, self.last - 1))
            whole = nodes[self.stage[nodes] == self.last]
            if len(whole):
                best_gain = max(best_gain, int(self.bound[whole].amax()))

    def likely_gain(self) -> int:
        """What the first choice gains at least, by a likely one: where bounds are below that, no column is needed."""
        best, stage = self.highest()
        if stage or int(self.bound[best]) <= 0:
            return 0
        nodes = self.next_of(best, stage, FIRST_COLUMNS[0])
        self.lower(nodes, 0)
        likely = nodes[self.bound[nodes].argmax()][None]
        self.lower(likely, self.last - 1)
        return int(self.bound[likely])

    def computed_before(
        self, best: Int[Tensor, " 1"], stage: int, count: int, stored: bool, best_gain: int
    ) -> Int[Tensor, " b"]:
        """The best node and others whose columns, stored or not, were computed for an earlier choice."""
        nodes = self.next_of(best, stage, count)
        wanted = (self.lowered_at[nodes] < self.num_chosen) & (self.bound[nodes] > best_gain)
        wanted &= (self.columns.length[nodes] > 0) == stored
        return torch.cat([best, nodes[1:][wanted[1:]]])

    def not_computed(self, best: Int[Tensor, " 1"], stage: int, width: int, best_gain: int) -> Int[Tensor, " b"]:
        """The best node and others whose columns of the next kind were not computed.

        These are the ones that this choice needs, as far as it is known, and of the first kind those that the next ones
        need: hardly any of them has to be computed again, where others are of use while they are stored.
        """
        ahead = 0 if stage else self.computed[0] // COLUMNS_PER_MORE
        nodes = self.next_of(best, stage, max(width, ahead))
        wanted = (self.lowered_at[nodes] == self.num_chosen) | (self.columns.length[nodes] == 0)
        wanted[:width] &= self.bound[nodes[:width]] > best_gain
        wanted[width:] &= self.bound[nodes[width:]] > self.soon()
        return torch.cat([best, nodes[1:][wanted[1:]]])

    def soon(self) -> int:
        """What gains will be after an eighth more choices, if they go on to fall as they did. Without any: no idea."""
        before = max(1, len(self.gains) // COLUMNS_PER_MORE)
        return 2 * self.gains[-1] - self.gains[-1 - before] if before < len(self.gains) else torch.iinfo(torch.long).max

    def highest(self) -> tuple[Int[Tensor, " 1"], int]:
        """The node with the highest bound, of equal ones that with the lowest number, and its stage."""
        first = [queue.argmax() for queue in self.queues]
        tops = [
            (int(queue[number]), -int(number), stage)
            for stage, (queue, number) in enumerate(zip(self.queues, first, strict=True))
        ]
        stage = max(tops)[2]
        return self.node[first[stage]], stage

    def next_of(self, best: Int[Tensor, " 1"], stage: int, count: int) -> Int[Tensor, " b"]:
        """The best node, and those of the `count` highest bounds of this stage."""
        nodes = self.node[self.queues[stage].topk(count)]
        return torch.cat([best, nodes[(nodes != best) & (self.stage[nodes] == stage) & (self.bound[nodes] > 0)]])

    def covered(self, column: Entries) -> Entries:
        """What these columns cover: 1 - exp(-λ S)."""
        return Entries(column.length, column.col, torch.expm1(-self.rate * column.value).neg_())

    def raise_cover(self, covered: Entries) -> None:
        """The cover of each node by these columns, where it is more than before."""
        self.cover.scatter_reduce_(0, covered.col.long(), covered.value, "amax")

    def lower(self, nodes: Int[Tensor, " b"], kind: int) -> None:
        """Lower the bounds of these nodes by their columns of this kind."""
        # Columns of near nodes have most nodes in common: several times as fast, since these stay in the cache.
        for some, column, complete in self.column_blocks(nodes.sort().values, kind):
            self.computed[kind] += len(some)
            self.entries_since += len(column.col)
            self.left_out[some] = self.linear[some] - self.rate * column.sum(self.left[column.col] * column.value)
            covered = self.covered(column)
            self.lower_to(some, covered, complete, kind + 1)
            self.columns.store(some, covered, self.bound)

    def column_blocks(
        self, nodes: Int[Tensor, " b"], kind: int
    ) -> Iterator[tuple[Int[Tensor, " c"], Entries, Bool[Tensor, " c"]]]:
        """The columns of this kind, some nodes at a time: those, their columns, and whether each is complete."""
        while len(nodes):
            some, nodes = nodes[: self.block_width[kind]], nodes[self.block_width[kind] :]
            column, complete = self.walk.columns(some, self.drop_below[kind])
            fitting = BLOCK_ENTRIES * len(some) // len(column.col)
            self.block_width[kind] = max(1, min(fitting, 2 * self.block_width[kind]))
            yield some, column, complete

    def lower_to(
        self, nodes: Int[Tensor, " b"], covered: Entries, complete: Bool[Tensor, " b"], stage: int | None = None
    ) -> None:
        """Lower the bounds of these nodes to what their columns give, with what these may leave out."""
        gain = covered.sum(self.weight[covered.col] * (covered.value - self.cover[covered.col]).clamp_(min=0))
        bound = torch.minimum(self.bound[nodes], self.round_up(gain + self.left_out[nodes]))
        bound = torch.where(complete, (gain / self.unit).round().long(), bound)
        self.lowered_at[nodes] = self.num_chosen
        before = self.stage[nodes]
        self.set_bound(nodes, bound, before if stage is None else torch.where(complete, self.last, stage))

    def set_bound(self, nodes: Int[Tensor, " b"], bound: Int[Tensor, " b"], stage: Int[Tensor, " b"]) -> None:
        before = self.stage[nodes]
        self.bound[nodes], self.stage[nodes] = bound, stage
        for number, queue in enumerate(self.queues):
            leaves = (before == number) & (stage != number)
            if bool(leaves.any()):
                queue[self.number[nodes[leaves]]] = -1
            here = stage == number
            if bool(here.any()):
                queue[self.number[nodes[here]]] = bound[here]


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
