"""A matrix with few entries in each row, some rows of which are replaced again and again."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.graph.row_block import RowBlock
from lightning_diffal.numerics.distinct import distinct
from lightning_diffal.numerics.precision import wide_dtype
from lightning_diffal.numerics.ragged import run_positions, run_starts

# Entries of a product that are computed at a time: about 200 MB with what is needed on the way.
PRODUCT_ENTRIES = 2**21


@dataclass(frozen=True, eq=False)
class Entries:
    """Rows of different lengths, end to end: the column and the value of each entry. Columns are in any order."""

    length: Tensor  # (r,)
    col: Tensor  # (e,)
    value: Tensor  # (e,)

    def __getitem__(self, rows: Int[Tensor, " s"]) -> "Entries":
        length = self.length[rows]
        place = run_positions(self.crow[rows].long(), length)
        return Entries(length, self.col[place], self.value[place])

    @cached_property
    def crow(self) -> Tensor:
        """Where each row starts, and the end. SciPy needs the type of the columns."""
        return torch.nn.functional.pad(self.length.cumsum(0), (1, 0)).to(self.col.dtype)

    def times(self, rows: "Entries", width: int) -> "Entries":
        """The product with a matrix of these rows and so many columns.

        On the CPU that of SciPy, which needs no sorted entries and no copy of the rows: half of the time of torch's.

        Cost: O(products), and on the CPU O(width).
        """
        if self.value.device.type == "cpu":
            product = self.scipy_matrix(len(rows.length)) @ rows.scipy_matrix(width)
            crow, col, value = (torch.from_numpy(part) for part in (product.indptr, product.indices, product.data))
            return Entries(crow.long().diff(), col, value)
        return self.torch_times(rows, width)

    def scipy_matrix(self, width: int) -> Any:
        from scipy.sparse import csr_array  # noqa: PLC0415, takes 0.2 s, and most selectors need no products

        parts = (self.value.numpy(), self.col.numpy(), self.crow.numpy())
        return csr_array(parts, shape=(len(self.length), width))

    def torch_times(self, rows: "Entries", width: int) -> "Entries":
        """The same by torch, on any device.

        Of COO tensors: with MKL, the product of two CSR tensors never frees 12 bytes for each entry (torch 2.15).
        """
        # Only the rows that are needed, numbered from 0: conversions read all of them.
        needed, number = distinct(self.col, len(rows.length))
        left = Entries(self.length, number, self.value).matrix(len(needed))
        with warnings.catch_warnings():
            # It uses CSR tensors, of which torch warns once in a process that they are in beta.
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
            product = torch.sparse.mm(left, rows[needed].matrix(width))
        row, col = product.indices()
        crow = torch.searchsorted(row, torch.arange(len(product) + 1, device=row.device))
        return Entries(crow.diff(), col, product.values())

    def matrix(self, width: int) -> Tensor:
        """A sparse COO tensor (r, width)."""
        index = torch.stack([torch.repeat_interleave(self.length), self.col.long()])
        size, device = (len(self.length), width), self.value.device
        return torch.sparse_coo_tensor(index, self.value, size, device=device, check_invariants=False)

    def sum(self, values: Float[Tensor, " e"]) -> Float[Tensor, " r"]:
        """The sum over each row of one number for each entry."""
        return torch.segment_reduce(values, "sum", lengths=self.length, initial=0)

    def all(self, holds: Bool[Tensor, " e"]) -> Bool[Tensor, " r"]:
        """Whether something holds for each entry of a row."""
        failed = torch.nn.functional.pad((~holds).cumsum(0), (1, 0))
        end = self.length.cumsum(0)
        return failed[end] == failed[end - self.length]


class SparseRows:
    """Row i holds `value[start[i] : start[i] + length[i]]` at the columns in `col`; nothing at first.

    A row that is replaced is written behind all others. Where there is no room left, the rows in use move to arrays
    that are half as long again.

    Memory: 18 bytes an entry, twice that while they move, and 16 bytes a row.
    """

    BYTES_PER_ENTRY = 36

    def __init__(self, num_rows: int, device: torch.device) -> None:
        self.start = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.length = torch.zeros_like(self.start)
        self.col = torch.zeros(0, dtype=torch.int32, device=device)
        self.value = torch.zeros(0, dtype=wide_dtype(device), device=device)
        self.end = self.num_entries = 0  # written so far; of these in use

    def __getitem__(self, rows: Int[Tensor, " r"]) -> Entries:
        length = self.length[rows]
        place = run_positions(self.start[rows], length)
        return Entries(length, self.col[place], self.value[place])

    def __setitem__(self, rows: Int[Tensor, " r"], entries: Entries) -> None:
        count = len(entries.col)
        self.clear(rows)
        self.num_entries += count
        if self.end + count > len(self.col):
            self.make_room(count)
        self.start[rows] = self.end + run_starts(entries.length)
        self.length[rows] = entries.length
        self.col[self.end : self.end + count] = entries.col
        self.value[self.end : self.end + count] = entries.value
        self.end += count

    def clear(self, rows: Int[Tensor, " r"]) -> None:
        self.num_entries -= int(self.length[rows].sum())
        self.length[rows] = 0

    def make_room(self, count: int) -> None:
        """Leave out what is not in use, and make room for `count` entries and as many again as a half of all."""
        place = run_positions(self.start, self.length)
        room = 3 * (len(place) + count) // 2 - len(place)
        self.col = torch.cat([self.col[place], self.col.new_zeros(room)])
        self.value = torch.cat([self.value[place], self.value.new_zeros(room)])
        self.start, self.end = run_starts(self.length), len(place)


def transition_times(
    graph: NeighborGraph, rows: Int[Tensor, " r"], values: SparseRows, width: int
) -> Iterator[tuple[Int[Tensor, " s"], Entries]]:
    """These rows of M = D⁻¹W times `values` with so many columns, some rows at a time.

    Cost: for each edge of the rows, the entries of the row it leads to.
    """
    at_a_time = 1024
    while len(rows):
        some, rows = rows[:at_a_time], rows[at_a_time:]
        block = RowBlock(graph, some, [len(some)])
        # Only the rows of `values` that the block leads to, numbered from 0.
        needed, number = distinct(block.col, len(values.start))
        left = Entries(graph.degree[some], number, block.weight)
        entries = left.times(values[needed], width)
        yield some, entries
        per_row = (len(entries.col) + len(block.col)) / len(some)
        at_a_time = max(1, min(2 * at_a_time, int(PRODUCT_ENTRIES / max(1.0, per_row))))
