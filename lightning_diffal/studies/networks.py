"""The networks of the paper. Each is a description that can be printed, compared, and built."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

# Channels of VGG-16's convolutions; 0 is a MaxPool.
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
# Side of the smallest image that five MaxPools leave something of.
VGG16_SIDE = 32
# Where the paper adds dropout it names no rate; this is the usual one.
DROPOUT = 0.5


@dataclass(frozen=True, kw_only=True)
class FullyConnected:
    """Hidden layers of the given widths, then the classifier."""

    widths: tuple[int, ...]
    batch_norm: bool = False
    """A BatchNorm before each hidden layer, the first one included."""
    dropout: bool = False
    """A dropout layer after each hidden layer."""

    def build(self, shape: tuple[int, ...], num_classes: int, *, dropout: bool) -> nn.Sequential:
        """For points of a shape. `dropout` adds the layers that selectors by dropout need; it changes no weight."""
        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        width = torch.Size(shape).numel()
        for after in self.widths:
            layers += [nn.BatchNorm1d(width)] * self.batch_norm
            layers += [nn.Linear(width, after), nn.ReLU()]
            layers += [nn.Dropout(DROPOUT)] * (self.dropout or dropout)
            width = after
        return nn.Sequential(*layers, nn.Linear(width, num_classes))


@dataclass(frozen=True, kw_only=True)
class Convolutional:
    """One convolution and a MaxPool under fully connected layers."""

    channels: int
    kernel: int
    head: FullyConnected

    def build(self, shape: tuple[int, ...], num_classes: int, *, dropout: bool) -> nn.Sequential:
        if len(shape) != 3 or min(shape[1:]) < self.kernel:
            raise ValueError(
                f"Convolutional: points of shape {shape} were given; images of at least {self.kernel} × {self.kernel} "
                "pixels are needed. The network of mnist-fc takes any shape."
            )
        # The paper says padding 2 for a kernel of 2, which torch refuses: at most half the kernel is padding.
        below = nn.Sequential(
            nn.Conv2d(shape[0], self.channels, self.kernel), nn.MaxPool2d(2, padding=1), nn.ReLU(), nn.Flatten()
        )
        with torch.no_grad():
            width = below(torch.zeros(1, *shape)).shape[1]
        return nn.Sequential(*below, *self.head.build((width,), num_classes, dropout=dropout))


class Centered(nn.Module):
    """Pixels from 0 to 1, brought around zero with about unit variance."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.45) / 0.225


@dataclass(frozen=True, kw_only=True)
class VGG:
    """VGG-16's convolutions under fully connected layers, all of them trained.

    The head is smaller than ImageNet's, as is usual for images of 32 × 32 pixels.
    """

    head: FullyConnected

    def build(self, shape: tuple[int, ...], num_classes: int, *, dropout: bool) -> nn.Sequential:
        check_vgg_shape(shape)
        below = vgg16_convolutions(shape[0])
        for layer in below:
            if isinstance(layer, nn.Conv2d):  # as torchvision does, without which nothing is learned for long
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        side = (shape[1] // VGG16_SIDE) * (shape[2] // VGG16_SIDE)
        return nn.Sequential(
            Centered(), *below, nn.Flatten(), *self.head.build((512 * side,), num_classes, dropout=dropout)
        )


Architecture = FullyConnected | Convolutional | VGG


def check_vgg_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or min(shape[1:]) < VGG16_SIDE:
        raise ValueError(
            f"VGG-16: points of shape {shape} were given; images of at least {VGG16_SIDE} × {VGG16_SIDE} pixels are "
            "needed. The network of mnist-fc takes any shape."
        )


def vgg16_convolutions(channels: int = 3) -> nn.Sequential:
    """The layers torchvision calls `vgg16().features`, in the same order, so that its weights fit."""
    layers: list[nn.Module] = []
    for width in VGG16:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(*layers)
