"""Whether the labels of all others predict a point rightly, in large pools by walks from it, as far as that needs."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.diffusion.graph_labels import STEPS
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.diffusion.sparse_rows import Entries
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labels import UNLABELED
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.sparse import csr

# `leave_one_out` takes a product for each step, edge and class, and half of one for each point. So many take a second,
# and walks, which may take twenty times as long (docs/speed.md), are not worth a try.
FEW_PRODUCTS = 4e9
# A product of sparse rows takes as long as about so many of these. Walks are followed for as long as diffusion takes.
SPARSE_PRODUCT = 40
# Walks are dropped at nodes where less than this share of all labels that they may still find is found. Points that are
# not decided then are followed again, with the next.
NEGLIGIBLE = (1e-4, 1e-5, 1e-6, 1e-7, 0.0)
# Labels that walks may find are bounded for so many steps at a time.
STEPS_AT_A_TIME = 4
# Entries of walks that are followed together: 200 MB at most with what is needed on the way, a tenth of that as a rule.
WALK_ENTRIES = 2**22
# Entries to which one step takes a walk from one node, about.
PER_NODE = 32
# Sums have rounding errors of this share at most.
ROUNDING = 1e-12


def predicted_right(
    graph: NeighborGraph, labels: Int[Tensor, " n"], rows: Int[Tensor, " s"], *, steps: int = STEPS
) -> Bool[Tensor, " s"]:
    """Whether the class that diffuses to these labeled points from the labels of all others is their own.

    That is `leave_one_out(...).correct`, which a large pool with many classes gets without the masses of all classes.
    h_c is the probability that a walk from the point ends in T steps at another point with a label of class c. So the
    walks u from the points are followed, as rows of a sparse matrix. Let q_j be the probability that a walk from j
    finds any label in the steps that are left. What is still to come is at most Σ_j u_j q_j: a point is decided when
    its own class or another one leads by more. For the same reason a walk can be dropped where u_j q_j is small. What
    walks have not decided when they took as long as `leave_one_out` would take, about, it does decide, as it does in
    smaller pools from the start.

    Args:
        graph: Symmetric. Products are several times as fast where neighbors are near in memory.

    Cost: at most about twice that of `leave_one_out`, often a fifth of it in large pools: O(steps · edges), then the
    edges of the nodes that most of a walk passes, which hardly depend on the size of the graph where labels are near.
    Memory: 12 bytes an edge, 60 a node and 200 MB.
    """
    found = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    if len(rows) == 0:
        return found
    num_classes = int(labels.max()) + 1
    waiting = torch.arange(len(rows), device=rows.device)
    products = steps * len(graph.col) * (num_classes + len(rows) / 2)
    if products > FEW_PRODUCTS:
        walks = LeftOutWalks(graph, labels, steps, products / SPARSE_PRODUCT)
        for share in NEGLIGIBLE:
            entries = min(graph.num_nodes, PER_NODE / share if share else graph.num_nodes)
            undecided = []
            for some in waiting.split(max(1, int(WALK_ENTRIES / entries))):
                right, decided = walks.follow(rows[some], share)
                found[some] = right
                undecided.append(some[~decided])
            waiting = torch.cat(undecided)
            if len(waiting) == 0:
                return found
    left_out = leave_one_out(graph, labels, num_classes, steps=steps, points=rows[waiting])
    found[waiting] = left_out.correct
    return found


class LeftOutWalks:
    """Walks that end at labels, but not at the label of the point they start from."""

    def __init__(self, graph: NeighborGraph, labels: Int[Tensor, " n"], steps: int, max_products: float) -> None:
        self.steps, self.degree = steps, graph.wide_influence
        self.products_left = max_products
        classes, self.label = labels.long().unique(return_inverse=True)
        self.num_classes = len(classes)
        if bool((classes == UNLABELED).any()):  # it is the first
            self.label, self.num_classes = self.label - 1, self.num_classes - 1
        col = graph.col.to(torch.int32) if len(graph.col) < 2**31 else graph.col
        self.edges = Entries(graph.degree, col, graph.weight.to(wide_dtype(graph.device)))
        # The probability that a walk finds a label within 4, 8 ... steps, rounded up. From a labeled point one step is
        # taken first: only the point left out is passed.
        self.finds: list[Tensor] = []
        labeled, weights = labels != UNLABELED, csr(graph.crow, graph.col, self.edges.value, graph.num_nodes)
        reached = labeled.to(self.degree.dtype)
        for step in range(1, steps + STEPS_AT_A_TIME):
            reached = weights @ reached / self.degree
            if step % STEPS_AT_A_TIME == 0:
                self.finds.append(reached.float() * (1 + 2.0**-20))
            reached[labeled] = 1

    def may_find(self, nodes: Int[Tensor, " e"], steps: int) -> Float[Tensor, " e"]:
        return self.finds[-(-steps // STEPS_AT_A_TIME) - 1][nodes].to(self.degree.dtype)

    def follow(self, rows: Int[Tensor, " s"], share: float) -> tuple[Bool[Tensor, " s"], Bool[Tensor, " s"]]:
        """Whether the class of each row is that of the point, and whether that is certain.

        No more walks are followed once they took `max_products` in all.
        """
        own, most = self.label[rows], self.may_find(rows, self.steps)
        found = most.new_zeros(len(rows), self.num_classes)
        dropped, right, decided = torch.zeros_like(most), torch.zeros_like(own, dtype=torch.bool), own < 0
        on = torch.arange(len(rows), device=rows.device)  # the walks that go on
        walk = Entries(torch.ones_like(rows), rows.to(self.edges.col.dtype), torch.ones_like(most))
        for left in reversed(range(self.steps)):
            self.products_left -= int(self.edges.length[walk.col].sum())
            if self.products_left < 0:
                break
            walk = Entries(walk.length, walk.col, walk.value / self.degree[walk.col])
            walk = walk.times(self.edges, len(self.degree))
            start = on.repeat_interleave(walk.length)
            ends = (self.label[walk.col] >= 0) & (walk.col != rows[start])
            found.index_put_((start[ends], self.label[walk.col[ends]].long()), walk.value[ends], accumulate=True)
            finds = self.may_find(walk.col, left) * walk.value if left else torch.zeros_like(walk.value)
            finds[ends] = 0
            stays = finds > share * most[start]
            to_come = walk.sum(torch.where(stays, finds, 0.0))
            dropped[on] += walk.sum(torch.where(stays, 0.0, finds))
            slack = to_come + dropped[on]
            mine = found[on].gather(1, own[on, None])[:, 0]
            other = found[on].scatter(1, own[on, None], 0.0).amax(dim=1)
            certain = (mine - other).abs() > slack + ROUNDING * most[on]
            certain |= slack == 0
            # Of equal classes the lowest is predicted; none where no label is found.
            right[on] = (found[on].argmax(dim=1) == own[on]) & (mine > 0)
            decided[on] |= certain
            kept = stays & ~certain.repeat_interleave(walk.length)
            walk = Entries(walk.sum(kept.to(walk.value.dtype)).long()[~certain], walk.col[kept], walk.value[kept])
            on = on[~certain]
            if len(on) == 0:
                break
        return right, decided
