"""Many steps for each batch of the loader are the steps of small batches, one after another."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lightning_diffal.studies.optimizers import SGD
from lightning_diffal.studies.training import Classifier, split_evenly


def test_a_large_batch_is_trained_in_small_ones_in_their_order():
    torch.manual_seed(0)
    x, y = torch.randn(7, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    model, plain = Classifier(nn.Linear(4, 3), SGD(lr=0.1, momentum=0.9), batch_size=3, num_classes=3), nn.Linear(4, 3)
    plain.load_state_dict(model.layers.state_dict())
    model.steps, steps = model.configure_optimizers(), SGD(lr=0.1, momentum=0.9).configure(plain.parameters())
    before, model.num_labeled = plain.weight.detach().clone(), 7
    model.training_step((x, y), 0)
    for part in (slice(0, 3), slice(3, 6), slice(6, 7)):
        steps.zero_grad()
        cross_entropy(plain(x[part]), y[part]).backward()
        steps.step()
    assert torch.equal(model.layers.weight, plain.weight)
    assert not torch.equal(plain.weight, before)


def test_points_behind_the_labeled_ones_are_spread_over_the_steps():
    rows = torch.arange(7 + 5)
    assert [part.tolist() for part in split_evenly(rows, 7, 3)] == [[0, 1, 2, 7, 8], [3, 4, 5, 9, 10], [6, 11]]
    assert [part.tolist() for part in split_evenly(rows[:8], 7, 3)] == [[0, 1, 2, 7], [3, 4, 5], [6]]
