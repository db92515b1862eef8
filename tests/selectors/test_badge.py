import pytest
import torch

from lightning_diffal.selectors import BADGESelector
from lightning_diffal.selectors.badge import Gradients
from tests.selectors.test_contract import ask, changed, snapshot_of


def last_layers_gradients(points, logits):
    """The gradient of the cross-entropy with the model's own prediction as label, by autograd."""
    rows = []
    for x, goal in zip(points.double(), logits.double(), strict=True):
        weight = torch.zeros(len(goal), len(x), dtype=torch.float64, requires_grad=True)
        out = (weight @ x + goal)[None]
        torch.nn.functional.cross_entropy(out, goal.argmax()[None]).backward()
        rows.append(weight.grad.flatten())
    return torch.stack(rows)


def test_the_factors_give_the_distances_of_the_gradients_of_a_last_layer():
    snapshot, _ = snapshot_of(n=25)
    gradient = last_layers_gradients(snapshot.embeddings, snapshot.logits)
    factors = Gradients(snapshot.embeddings, snapshot.probabilities)
    expected = torch.cdist(gradient, gradient).square()
    found = factors.distance_to(torch.arange(25))
    assert torch.allclose(found.double(), expected, atol=1e-4, rtol=1e-4)
    assert torch.allclose(factors.square_norm.double(), gradient.square().sum(dim=1), rtol=1e-5)


def test_the_first_is_the_longest_gradient():
    snapshot, truth = snapshot_of(n=80)
    norm = last_layers_gradients(snapshot.embeddings, snapshot.logits).norm(dim=1)
    norm[snapshot.labeled] = 0
    query = ask(BADGESelector(), snapshot, 3, truth)
    assert query.indices[0] == norm.argmax()
    assert query.scores[0].item() == pytest.approx(-float(norm.max() ** 2), rel=1e-5)


def test_the_second_is_drawn_by_the_squared_distance_to_the_first():
    snapshot, truth = snapshot_of(n=12, known=6)
    gradient = last_layers_gradients(snapshot.embeddings, snapshot.logits)[snapshot.unlabeled]
    chance = (gradient - gradient[gradient.norm(dim=1).argmax()]).square().sum(dim=1)
    chance /= chance.sum()
    second = [int(ask(BADGESelector(), snapshot, 2, truth, seed=seed).indices[1]) for seed in range(250)]
    share = torch.bincount(torch.tensor(second), minlength=12)[snapshot.unlabeled] / 250
    assert share.tolist() == pytest.approx(chance.tolist(), abs=0.12)  # four standard deviations


def test_copies_of_a_chosen_gradient_are_asked_last():
    snapshot, truth = snapshot_of(n=40, known=0)
    copies = torch.arange(40).clamp_max(9)  # thirty of the last
    twins = changed(snapshot, embeddings=snapshot.embeddings[copies] + 10, logits=snapshot.logits[copies])
    for seed in range(5):
        assert len(set(copies[ask(BADGESelector(), twins, 10, truth, seed=seed).indices].tolist())) == 10


def test_where_the_model_is_sure_of_all_points_any_are_asked():
    snapshot, truth = snapshot_of(logits=torch.tensor([[200.0, 0, 0]]).repeat(60, 1))
    assert len(set(ask(BADGESelector(), snapshot, 30, truth).indices.tolist())) == 30
