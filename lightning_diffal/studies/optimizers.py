"""The optimizers of the paper, as frozen descriptions: `repr` goes into the results."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR


@dataclass(frozen=True, kw_only=True)
class SGD:
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    def configure(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True, kw_only=True)
class Adam:
    lr: float
    halved_every: int | None = None
    """Halve the learning rate after every so many epochs."""

    def configure(self, parameters: Iterable[nn.Parameter]) -> Any:
        optimizer = torch.optim.Adam(parameters, self.lr, fused=True)
        if self.halved_every is None:
            return optimizer
        return [optimizer], [StepLR(optimizer, self.halved_every, gamma=0.5)]
