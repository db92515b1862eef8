"""Concatenated runs of different lengths: the neighbors of several nodes, the members of several cells."""

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


def run_starts(lengths: Int[Tensor, " r"]) -> Int[Tensor, " r"]:
    """The start of each run when runs of these lengths are concatenated."""
    return lengths.cumsum(0) - lengths


def run_positions(starts: Int[Tensor, " r"], lengths: Int[Tensor, " r"]) -> Int[Tensor, " total"]:
    """Every position of the runs [start, start + length), one run after another.

    >>> run_positions(torch.tensor([5, 0]), torch.tensor([2, 3]))
    tensor([5, 6, 0, 1, 2])
    """
    shift = torch.repeat_interleave(starts - run_starts(lengths), lengths)
    return shift + torch.arange(len(shift), device=starts.device)


def side_by_side(
    row: Int[Tensor, " total"], lengths: Int[Tensor, " r"], values: Shaped[Tensor, " total"], fill: int | float
) -> Shaped[Tensor, "r longest"]:
    """The runs as rows of a table, the shorter ones filled up; `row` says for each value which run it is in.

    >>> side_by_side(torch.tensor([0, 1, 1]), torch.tensor([1, 2]), torch.tensor([5, 6, 7]), 0)
    tensor([[5, 0],
            [6, 7]])
    """
    place = torch.arange(len(row), device=row.device) - run_starts(lengths)[row]
    table = values.new_full((len(lengths), int(lengths.amax())), fill)
    table[row, place] = values
    return table
