"""Selectors on a large pool, one after another, then the most memory the process has held. Run by test_large_pool."""

import json
import resource
import sys

import torch

from lightning_diffal import UNLABELED, selectors
from tests.selectors.test_contract import ask, snapshot_of


def main(n, known, size, *expressions):
    """Ask each selector for `size` points of n in 20 dimensions; print how many were chosen, and gigabytes."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(10, (n,), generator=generator)
    center = 2 * torch.randn(10, 20, generator=generator)
    embeddings = center[truth] + torch.randn(n, 20, generator=generator)
    logits = embeddings @ center.T
    labels = torch.full((n,), UNLABELED)
    labels[:known] = truth[:known]
    passes = selectors.StochasticPasses(logits.softmax(dim=1), torch.zeros(n))
    snapshot, _ = snapshot_of(labels=labels, num_classes=10, embeddings=embeddings, logits=logits, stochastic=passes)
    before = most_held()
    chosen = {code: len(ask(eval(code, vars(selectors)), snapshot, size, truth)) for code in expressions}
    print(json.dumps({"chosen": chosen, "all": most_held(), "added": most_held() - before}))


def most_held():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
