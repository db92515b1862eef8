"""The highest of many numbers, some of which change again and again."""

import torch
from jaxtyping import Int, Num
from torch import Tensor

# Numbers in a group. Finding the highest of n reads n / GROUP + GROUP of them.
GROUP = 64


class HighestFirst:
    """Numbers, of which the highest are found without looking at all of them.

    `group` holds the highest number of each run of 64, so that a change costs as many reads for each run it is in.

    Memory: 8 bytes a number.
    """

    def __init__(self, values: Num[Tensor, " n"]) -> None:
        groups = -(-len(values) // GROUP)
        lowest = -float("inf") if values.dtype.is_floating_point else torch.iinfo(values.dtype).min
        self.padded = values.new_full((groups * GROUP,), lowest)
        self.values = self.padded[: len(values)]
        self.values.copy_(values)
        self.groups = self.padded.view(groups, GROUP)
        self.highest = self.groups.amax(dim=1)

    def __getitem__(self, rows: Int[Tensor, " r"]) -> Num[Tensor, " r"]:
        return self.values[rows]

    def __setitem__(self, rows: Int[Tensor, " r"], values: Num[Tensor, " r"] | int | float) -> None:
        self.values[rows] = values
        groups = (rows // GROUP).unique()
        self.highest[groups] = self.groups[groups].amax(dim=1)

    def argmax(self) -> Int[Tensor, " 1"]:
        """Where the highest number is, the first of equal ones."""
        group = self.highest.argmax(dim=0, keepdim=True)  # the first of equal ones, by its documentation
        return group * GROUP + self.groups[group].argmax(dim=1)

    def topk(self, count: int) -> Int[Tensor, " c"]:
        """Where the highest numbers are, in falling order; those that are -∞ may be missing."""
        count = min(count, len(self.values))
        # None of them is in another group: as many numbers are at least as high.
        groups = self.highest.topk(min(count, len(self.highest))).indices
        place = self.groups[groups].flatten().topk(count).indices
        rows = groups[place // GROUP] * GROUP + place % GROUP
        return rows[rows < len(self.values)]
