"""Principal components of rows, the same for the pool and the test set."""

import functools
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from lightning_diffal.numerics.pca import leading_eigenvectors, with_fixed_sign
from lightning_diffal.studies.data import Points, Source, load


@functools.lru_cache(maxsize=2)
def load_components(name: str, folder: Path, count: int) -> Source:
    """A data set with its points replaced by their leading principal components, divided by one standard deviation.

    Mean, axes and the deviation (of all components together, so that their proportions stay) are those of the training
    points. With fewer than `count` columns, all components.
    """
    source = load(name, folder)
    train, test = source.train.x.flatten(1), source.test.x.flatten(1)
    mean, axes = principal_axes(train, count)
    train, test = (train - mean) @ axes, (test - mean) @ axes
    scale = train.std()
    return Source(
        name, Points(train / scale, source.train.targets), Points(test / scale, source.test.targets), source.digest
    )


def principal_axes(rows: Float[Tensor, "n d"], count: int) -> tuple[Float[Tensor, " d"], Float[Tensor, "d k"]]:
    """The mean, and the orthonormal directions of the largest variances, largest first; the same in every process."""
    mean = rows.mean(dim=0)
    centered = rows - mean
    axes = with_fixed_sign(leading_eigenvectors((centered.T @ centered).double(), count))
    return mean, axes.to(rows.dtype)
