"""Embeddings of hundreds of dimensions for the benchmarks: real features, a trained head, and noise."""

from pathlib import Path

import numpy as np
import torch
from synthetic_embeddings import synthetic_embeddings
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

NAMES = ("efficientnet", "trained head", "made-up", "white noise")


def load(name: str, data: Path, points: int | None = None) -> Tensor:
    """The pool of that name, all of it or so many points."""
    if name == "efficientnet":  # 20,000 images of CIFAR-10, 1,280 features each
        return torch.from_numpy(np.load(data / "cifar10_efficientnet.npz")["x_train"]).float()[:points]
    if name == "trained head":
        return trained_head(data)[:points]
    if name == "made-up":
        return torch.from_numpy(synthetic_embeddings(points or 50_000, 512, classes=10)[0])
    return torch.randn(points or 20_000, 512, generator=torch.Generator().manual_seed(0))


def trained_head(data: Path) -> Tensor:
    """The 512 units before the classifier of a network trained on 5,000 MNIST digits, for 50,000 of them."""
    archive = np.load(data / "mnist.npz")
    x = torch.from_numpy(archive["x_train"][:50_000]).float().flatten(1) / 255
    y = torch.from_numpy(archive["y_train"][:50_000])
    x = (x - x.mean()) / x.std()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hidden = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        head = nn.Linear(512, 10)
        optimizer = torch.optim.Adam([*hidden.parameters(), *head.parameters()], 1e-3)
        for _ in range(6):
            for rows in torch.randperm(5_000).split(64):
                optimizer.zero_grad()
                cross_entropy(head(hidden(x[rows])), y[rows]).backward()
                optimizer.step()
    with torch.no_grad():
        return torch.cat([hidden(part) for part in x.split(2_000)])
