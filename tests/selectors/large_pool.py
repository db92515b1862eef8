"""Selectors on a large pool, one after another, then the most memory the process has held. Run by test_large_pool."""

import json
import resource
import sys

import torch

import lightning_diffal
from lightning_diffal import UNLABELED
from tests.selectors.test_contract import ask, snapshot_of


def main(n, expressions):
    """Ask each selector for 100 points of n in 20 dimensions, with 30 labels known; print how many were chosen."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(10, (n,), generator=generator)
    center = 2 * torch.randn(10, 20, generator=generator)
    embeddings = center[truth] + torch.randn(n, 20, generator=generator)
    logits = embeddings @ center.T
    labels = torch.full((n,), UNLABELED)
    labels[:30] = truth[:30]
    passes = lightning_diffal.StochasticPasses(logits.softmax(dim=1), torch.zeros(n))
    snapshot, _ = snapshot_of(labels=labels, num_classes=10, embeddings=embeddings, logits=logits, stochastic=passes)
    chosen = {code: len(ask(eval(code, vars(lightning_diffal)), snapshot, 100, truth)) for code in expressions}
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"chosen": chosen, "gigabytes": kilobytes * 1024 / 1e9}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
