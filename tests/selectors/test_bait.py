"""BAIT against its objective, computed from dense matrices for every candidate of every step."""

import pytest
import torch

from lightning_diffal import Snapshot
from lightning_diffal.selectors import BAITSelector
from tests.selectors.test_contract import snapshot_of


def dense_query(snapshot, size, regularization):
    """The query with tr(M⁻¹ F) computed for every M there is to choose from."""
    x = snapshot.embeddings.double()
    x = x / x.square().sum(dim=1).mean().sqrt()
    p = snapshot.logits.double().softmax(dim=1)
    information = torch.stack(
        [torch.kron(torch.diag(q) - torch.outer(q, q), torch.outer(z, z)) for q, z in zip(p, x, strict=True)]
    )
    pool, known = information.mean(dim=0), len(snapshot.labeled)
    start = regularization * torch.eye(len(pool), dtype=torch.float64)
    if known:
        start = start + known / (known + size) * information[snapshot.labeled].mean(dim=0)

    def objective(chosen):
        return torch.linalg.solve(start + size / (known + size) * information[chosen].sum(dim=0), pool).trace()

    chosen, falls, rest = [], {}, snapshot.unlabeled.tolist()
    for _ in range(min(2 * size, len(rest))):
        before = objective(chosen)
        best = min(rest, key=lambda index: objective([*chosen, index]))
        falls[best] = before - objective([*chosen, best])
        chosen.append(best)
        rest.remove(best)
    while len(chosen) > size:
        chosen.remove(min(chosen, key=lambda index: objective([other for other in chosen if other != index])))
    return chosen, [float(falls[index]) for index in chosen]


@pytest.mark.parametrize(
    ("n", "known", "classes", "size", "regularization"),
    [(40, 6, 3, 5, 1.0), (40, 0, 3, 4, 0.01), (30, 26, 2, 3, 1.0), (30, 4, 5, 3, 0.1)],
)
def test_the_query_lowers_the_objective_most_step_by_step(n, known, classes, size, regularization):
    snapshot, _ = snapshot_of(n=n, known=known, classes=classes, seed=n + known)
    chosen, falls = dense_query(snapshot, size, regularization)
    query = BAITSelector(regularization=regularization)(snapshot, size)
    assert query.indices.tolist() == chosen
    torch.testing.assert_close(-query.scores, torch.tensor(falls, dtype=torch.float64))


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match=r"BAITSelector\(regularization=0\): a positive number is needed"):
        BAITSelector(regularization=0)
    large = Snapshot(
        labels=torch.full((3,), -1), num_classes=40, embeddings=torch.rand(3, 512), logits=torch.rand(3, 40)
    )
    with pytest.raises(ValueError, match=r"512 numbers and 40 classes make 20480 parameters, more than 16384"):
        BAITSelector()(large, 1)
