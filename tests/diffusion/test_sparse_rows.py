"""Products of sparse rows against dense ones."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_diffal.diffusion.sparse_rows import Entries


def sparse(matrix, generator):
    """Its entries, those of each row in any order."""
    row, col = matrix.nonzero().T
    order = torch.randperm(len(row), generator=generator)
    order = order[row[order].argsort(stable=True)]
    return Entries((matrix != 0).sum(dim=1), col[order].to(torch.int32), matrix[row, col][order])


def dense(entries, width):
    matrix = torch.zeros(len(entries.length), width, dtype=torch.float64)
    row = torch.repeat_interleave(entries.length)
    matrix.index_put_((row, entries.col.long()), entries.value, accumulate=True)
    assert len(torch.unique(row * width + entries.col)) == len(row), "each column once"
    return matrix


@given(
    height=st.integers(1, 6), middle=st.integers(1, 6), width=st.integers(1, 6), share=st.floats(0, 1),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_products_of_scipy_and_of_torch_are_those_of_dense_matrices(height, middle, width, share, seed):
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        torch.randn(size, generator=generator, dtype=torch.float64) * (torch.rand(size, generator=generator) < share)
        for size in ((height, middle), (middle, width))
    )
    first, second = sparse(left, generator), sparse(right, generator)
    for times in (Entries.times, Entries.torch_times):
        torch.testing.assert_close(dense(times(first, second, width), width), left @ right)
    rows = torch.randint(height, (4,), generator=generator)
    assert torch.equal(dense(first[rows], middle), left[rows])
