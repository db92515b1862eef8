"""Selectors that go by distances between points: of the embedding, or of the fixed features."""

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.selectors.base import BatchSelector

PointSource: TypeAlias = Literal["embeddings", "features"]


@skip_type_check
@dataclass(frozen=True, kw_only=True, repr=False)
class PointSelector(BatchSelector):
    """Chooses by distances between points.

    Args:
        on: "embeddings", those of this round, or "features", the fixed ones; without any the embedding stands in.
    """

    on: PointSource = "embeddings"

    def __post_init__(self) -> None:
        if self.on not in get_args(PointSource):
            raise ValueError(f'{type(self).__name__}(on={self.on!r}): "embeddings" or "features" is needed.')

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.on})

    def __repr__(self) -> str:
        """As of any dataclass; without `on` by default, as ledgers and results from before there were features."""
        names = [field.name for field in fields(self) if field.name != "on" or self.on != "embeddings"]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
