"""Runs of different lengths, laid end to end: the neighbors of a few nodes, the members of a few cells."""

import torch
from jaxtyping import Int
from torch import Tensor


def run_starts(lengths: Int[Tensor, " r"]) -> Int[Tensor, " r"]:
    """Where each run begins when runs of these lengths lie end to end."""
    return lengths.cumsum(0) - lengths


def run_positions(starts: Int[Tensor, " r"], lengths: Int[Tensor, " r"]) -> Int[Tensor, " total"]:
    """Every position of the runs [start, start + length), one run after another.

    >>> run_positions(torch.tensor([5, 0]), torch.tensor([2, 3]))
    tensor([5, 6, 0, 1, 2])
    """
    shift = torch.repeat_interleave(starts - run_starts(lengths), lengths)
    return shift + torch.arange(len(shift), device=starts.device)
