import pytest
import torch
from torch import nn

from lightning_diffal.studies.definitions import STUDIES

SHAPES = {
    "checkerboard": (2,),
    "mnist-fc": (1, 28, 28),
    "mnist-conv": (1, 28, 28),
    "cifar10": (512,),
    "svhn": (3, 32, 32),
    "digits": (64,),
    "cifar10-efficientnet": (256,),
    "mnist-lt": (1, 28, 28),
}
# Weights of all Linear and Conv2d layers, counted by hand from appendix A.
WEIGHTS = {
    "checkerboard": 2 * 30 + 30 * 30 + 30 * 2,
    "mnist-fc": 784 * 100 + 100 * 50 + 50 * 10,
    "mnist-conv": 16 * 25 + (16 * 13 * 13) * 20 + 20 * 20 + 20 * 10,
    "cifar10": 512 * 512 + 512 * 20 + 20 * 10,
    "svhn": 14_710_464 + 512 * 512 + 512 * 512 + 512 * 10,
    "digits": 64 * 100 + 100 * 50 + 50 * 10,
    "cifar10-efficientnet": 256 * 128 + 128 * 10,
    "mnist-lt": 784 * 100 + 100 * 50 + 50 * 10,
}


def built(name, dropout=False):
    torch.manual_seed(0)
    return STUDIES[name].network.build(SHAPES[name], 2 if name == "checkerboard" else 10, dropout=dropout)


@pytest.mark.parametrize("name", STUDIES)
def test_the_networks_have_as_many_weights_as_their_description_says(name):
    network = built(name)
    layers = [layer for layer in network.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    assert sum(layer.weight.numel() for layer in layers) == WEIGHTS[name]
    assert network.eval()(torch.rand(3, *SHAPES[name])).shape == (3, 2 if name == "checkerboard" else 10)


@pytest.mark.parametrize("name", ["mnist-fc", "mnist-conv"])
def test_a_batch_norm_stands_before_each_hidden_layer(name):
    kinds = [type(layer) for layer in built(name) if isinstance(layer, (nn.Linear, nn.BatchNorm1d))]
    assert kinds == [nn.BatchNorm1d, nn.Linear, nn.BatchNorm1d, nn.Linear, nn.Linear]


@pytest.mark.parametrize("name", ["checkerboard", "mnist-fc", "mnist-conv", "cifar10"])
def test_dropout_stands_after_each_hidden_layer_and_changes_no_weight(name):
    plain, dropping = built(name), built(name, dropout=True)
    kinds = [type(layer) for layer in dropping if isinstance(layer, (nn.Linear, nn.Dropout))]
    assert kinds == [nn.Linear, nn.Dropout, nn.Linear, nn.Dropout, nn.Linear]
    for ours, theirs in zip(plain.parameters(), dropping.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_vgg_takes_gray_images_as_three_equal_channels():
    network = built("svhn").eval()
    gray = torch.rand(2, 1, 32, 32)
    assert torch.equal(network(gray), network(gray.expand(-1, 3, -1, -1)))
    assert not torch.equal(network(gray)[0], network(gray)[1])


def test_a_network_for_images_refuses_rows_of_numbers():
    with pytest.raises(ValueError, match=r"shape \(9,\).*mnist-fc takes any shape"):
        STUDIES["mnist-conv"].network.build((9,), 3, dropout=False)
    with pytest.raises(ValueError, match=r"\(3, 16, 16\).*at least 32 × 32"):
        STUDIES["svhn"].network.build((3, 16, 16), 3, dropout=False)
