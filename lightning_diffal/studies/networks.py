"""The networks of the paper, as frozen descriptions: `repr` goes into the results, `build` makes the layers."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

# The smallest image with a pixel left after five MaxPools.
VGG16_SIDE = 32
# The paper gives no rate for its dropout layers; this is the usual one.
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
        """For points of this shape. `dropout` adds the layers that dropout selectors need, and changes no weight."""
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
        # The paper says padding 2 for a kernel of 2; torch allows at most half the kernel.
        below = nn.Sequential(
            nn.Conv2d(shape[0], self.channels, self.kernel), nn.MaxPool2d(2, padding=1), nn.ReLU(), nn.Flatten()
        )
        with torch.no_grad():
            width = below(torch.zeros(1, *shape)).shape[1]
        return nn.Sequential(*below, *self.head.build((width,), num_classes, dropout=dropout))


class Centered(nn.Module):
    """Pixels from 0 to 1, normalized to about zero mean and unit variance; gray images get three equal channels."""

    def forward(self, x: Tensor) -> Tensor:
        return ((x - 0.45) / 0.225).expand(-1, 3, -1, -1)


@dataclass(frozen=True, kw_only=True)
class VGG:
    """VGG-16's convolutions under fully connected layers, all of them trained.

    The head is smaller than ImageNet's, as is usual for images of 32 × 32 pixels.
    """

    head: FullyConnected

    def build(self, shape: tuple[int, ...], num_classes: int, *, dropout: bool) -> nn.Sequential:
        check_vgg_shape(shape)
        below = vgg16_convolutions()
        for layer in below:
            if isinstance(layer, nn.Conv2d):  # torchvision's initialization; with torch's own, training stalls
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


def vgg16_convolutions() -> nn.Sequential:
    """`torchvision.models.vgg16().features`, without building the classifier of 120 million weights."""
    from torchvision.models.vgg import cfgs, make_layers  # noqa: PLC0415, an extra

    return make_layers(cfgs["D"])  # type: ignore[no-any-return]
