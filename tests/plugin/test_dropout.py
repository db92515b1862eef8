"""Passes with dropout share what comes before the first dropout layer, where the model allows it."""

import pytest
import torch
from torch import nn

from lightning_diffal.plugin.model.dropout import DropoutPasses

ROWS, WIDTH, PASSES = 6, 16, 50


class Head(nn.Module):
    """Dropout under the classifier alone; counts how often what is below it runs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.below, self.dropout, self.head = nn.Linear(4, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, 3)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return self.above(self.below(x).relu())

    def above(self, hidden):
        return self.head(self.dropout(hidden))


class Twice(Head):
    """A second dropout layer, whose rows are repeated already."""

    def above(self, hidden):
        return nn.functional.dropout(self.head(self.dropout(self.dropout(hidden))), 0.0)


class Around(Head):
    """What goes around the dropout layer has fewer rows than what goes through."""

    def above(self, hidden):
        return self.head(hidden + self.dropout(hidden))


class Mixing(Head):
    """A row depends on how many others there are."""

    def above(self, hidden):
        return self.head(self.dropout(hidden).softmax(dim=0))


class Lying(Head):
    """The second dimension of what the dropout layer gets are the points."""

    def above(self, hidden):
        return self.head(self.dropout(hidden.T).T)


class Counting(Head):
    """Refuses a batch that has grown."""

    def above(self, hidden):
        return self.head(self.dropout(hidden).view(ROWS, WIDTH))


def measured(model, passes, seed=0, **options):
    """What `embed` does with a batch; `seed` is that of the passes."""
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model.eval()

    def logits_of(rows, output):
        assert len(output) == rows
        return output

    several = DropoutPasses(model, passes, logits_of, **options)
    with torch.no_grad():
        several.repeat_rows = several.allows_repeating(lambda: model(x), ROWS, model(x))
        model.runs = 0
        torch.manual_seed(seed)
        mean, entropy = several.average(lambda: model(x), ROWS)
    assert not any(child.training for child in model.modules()), "eval mode again"
    assert not model.dropout._forward_pre_hooks, "no hook is left"
    return x, mean, entropy


@pytest.mark.parametrize("network", [Head, Twice])
def test_what_comes_before_the_first_dropout_layer_runs_once(network):
    model = network()
    measured(model, PASSES)
    assert model.runs == 1


@pytest.mark.parametrize("network", [Around, Mixing, Lying, Counting])
def test_a_model_that_does_not_take_repeated_rows_runs_once_for_each_pass(network):
    model = network()
    measured(model, PASSES)
    assert model.runs == PASSES


def test_no_more_is_held_at_a_time_than_is_stated():
    model = Head()
    measured(model, PASSES, max_entries=16 * ROWS * WIDTH)
    assert model.runs == 4, "16, 16, 16 and 2 passes"
    measured(model, PASSES, max_entries=1)
    assert model.runs == PASSES


def one_by_one(model, x, passes):
    """The probabilities of each pass, and their entropy."""
    model.dropout.train()
    with torch.no_grad():
        probabilities = torch.stack([model(x).softmax(1) for _ in range(passes)])
    assert probabilities.std(0).mean() > 0.01, "dropout does something"
    return probabilities, torch.special.entr(probabilities).sum(2)


@pytest.mark.parametrize("network", [Around, Mixing, Lying, Counting])
def test_the_mean_and_the_entropy_of_passes_one_by_one_are_those_of_the_same_random_numbers(network):
    model = network()
    x, mean, entropy = measured(model, PASSES, seed=3)
    torch.manual_seed(3)
    passes, entropies = one_by_one(model, x, PASSES)
    torch.testing.assert_close(mean, passes.mean(0))
    torch.testing.assert_close(entropy, entropies.mean(0))


@pytest.mark.parametrize("network", [Head, Twice])
def test_the_mean_and_the_entropy_of_repeated_rows_are_those_of_passes_one_by_one(network):
    model = network()
    x, mean, entropy = measured(model, 4000)
    passes, entropies = one_by_one(model, x, 4000)
    # Two means of 4,000 passes each: their difference stays below five standard errors.
    error = 5 * (2 / 4000) ** 0.5
    assert ((passes.mean(0) - mean).abs() < error * passes.std(0) + 1e-6).all()
    assert ((entropies.mean(0) - entropy).abs() < error * entropies.std(0) + 1e-6).all()
