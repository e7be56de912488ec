"""VGG16 and VGG19: Simonyan & Zisserman, arXiv 1409.1556, in two styles.

``"paper"``: the networks of the experiment of Zhang et al., arXiv 2306.15951 (Dragon-Alpha 1.1), with the head for
CIFAR-10 or the one for ILSVRC2012. LeakyReLU after each convolution, a BatchNorm between a block's last convolution and
its LeakyReLU; three linear layers with LeakyReLU and dropout between. ``"torchvision"``: torchvision's topology without
BatchNorm and its names, so that its weights fit (``from_torch``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpha import Tensor, get_image_layout
from alpha.errors import ArgumentError
from alpha.nn import init
from alpha.nn.activation import LeakyReLU, ReLU
from alpha.nn.arguments import choice, positive
from alpha.nn.containers import Sequential
from alpha.nn.conv import Conv2d
from alpha.nn.dropout import Dropout
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from alpha.nn.shape import Flatten, Identity

_CONVOLUTIONS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


@dataclass(frozen=True)
class Head:
    """The paper's linear layers for one data set.

    Attributes:
        hidden: widths of the first two, in units of the base width.
        image_size: side of the images.
    """

    hidden: tuple[int, int]
    image_size: int


_HEADS = {"cifar10": Head((4, 2), 32), "ilsvrc2012": Head((64, 32), 128)}


class VGG(Module):
    """Images (N, H, W, 3) to logits (N, num_classes).

    Attributes:
        flattened_maps: for the linear layer behind the flattening, height and width of the maps it sees.
    """

    def __init__(
        self,
        features: Sequential,
        avgpool: Module,
        classifier: Sequential,
        flattened_maps: Mapping[str, tuple[int, int]],
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = avgpool
        self.flatten = Flatten()
        self.classifier = classifier
        self.flattened_maps = dict(flattened_maps) if get_image_layout() == "NHWC" else {}

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, 3) to (N, num_classes)."""
        return self.classifier(self.flatten(self.avgpool(self.features(x))))  # type: ignore[no-any-return]


def vgg16(
    num_classes: int = 10,
    style: str = "paper",
    *,
    base_width: int = 64,
    dropout: float | None = None,
    image_size: int | None = None,
    head: str | None = None,
) -> VGG:
    """VGG16.

    The paper's has 14,878,922 parameters with CIFAR-10's head and 10 classes, 58,711,592 with ILSVRC2012's and 1000;
    torchvision's has 138,357,544 with 1000 classes.

    Args:
        num_classes: length of the result's last axis.
        style: ``"paper"`` or ``"torchvision"``.
        base_width: channels of the first block; the others have 2, 4, 8 and 8 times as many, the linear layers in
            proportion.
        dropout: by default 0.1 in the paper style and 0.5 in torchvision's; 0 turns it off.
        image_size: side of the paper style's images, a multiple of 32, by default the head's: the first linear layer
            is made for them. torchvision's pools whatever maps it gets.
        head: the paper style's linear layers, ``"cifar10"`` (512-256-128-num_classes for images of 32 x 32, the
            default) or ``"ilsvrc2012"`` (8192-4096-2048-num_classes for images of 128 x 128).
    """
    return _vgg("vgg16", num_classes, style, base_width, dropout, image_size, head)


def vgg19(
    num_classes: int = 10,
    style: str = "paper",
    *,
    base_width: int = 64,
    dropout: float | None = None,
    image_size: int | None = None,
    head: str | None = None,
) -> VGG:
    """VGG19; arguments as for vgg16.

    The paper's has 20,187,338 parameters with CIFAR-10's head and 10 classes, 64,020,008 with ILSVRC2012's and 1000;
    torchvision's has 143,667,240 with 1000 classes.
    """
    return _vgg("vgg19", num_classes, style, base_width, dropout, image_size, head)


def _vgg(
    name: str,
    num_classes: int,
    style: str,
    base_width: int,
    dropout: float | None,
    image_size: int | None,
    head: str | None,
) -> VGG:
    positive(num_classes, "num_classes", name)
    positive(base_width, "base_width", name)
    if choice(style, ("paper", "torchvision"), "style", name) == "paper":
        chosen = _HEADS[choice("cifar10" if head is None else head, tuple(_HEADS), "head", name)]
        size = positive(chosen.image_size if image_size is None else image_size, "image_size", name)
        if size % 32:
            raise ArgumentError(
                f"[{name}] expected image_size to be a multiple of 32, got {size}: it is halved 5 times"
            )
        widths = (*(base_width * width for width in chosen.hidden), num_classes)
        return _paper(name, base_width, widths, 0.1 if dropout is None else dropout, size // 32)
    if image_size is not None:
        raise ArgumentError(
            f'[{name}] expected no image_size with style="torchvision", which takes any, got {image_size}: leave it out'
        )
    if head is not None:
        raise ArgumentError(f'[{name}] expected no head with style="torchvision", which has its own, got {head!r}')
    return _torchvision(name, num_classes, base_width, 0.5 if dropout is None else dropout)


def _paper(name: str, base_width: int, widths: tuple[int, ...], p: float, maps: int) -> VGG:
    """The paper's network; ``widths`` are those of the linear layers' results, ``maps`` the side of the last maps."""
    layers: list[Module] = []
    inputs = 3
    for block, count in enumerate(_CONVOLUTIONS[name]):
        outputs = base_width * min(2**block, 8)
        for index in range(count):
            layers.append(Conv2d(inputs, outputs, 3, padding=1, bias=False))
            layers += [BatchNorm2d(outputs)] if index == count - 1 else []
            layers.append(LeakyReLU())
            inputs = outputs
        layers.append(MaxPool2d(2))
    first, second, last = widths
    classifier = Sequential(
        Linear(inputs * maps * maps, first),
        LeakyReLU(),
        Dropout(p),
        Linear(first, second),
        LeakyReLU(),
        Dropout(p),
        Linear(second, last),
    )
    return VGG(Sequential(*layers), Identity(), classifier, {"classifier.0": (maps, maps)} if maps > 1 else {})


def _torchvision(name: str, num_classes: int, base_width: int, p: float) -> VGG:
    layers: list[Module] = []
    inputs = 3
    for block, count in enumerate(_CONVOLUTIONS[name]):
        outputs = base_width * min(2**block, 8)
        for _ in range(count):
            layers += [Conv2d(inputs, outputs, 3, padding=1), ReLU()]
            inputs = outputs
        layers += [MaxPool2d(2)]
    hidden = 64 * base_width
    classifier = Sequential(
        Linear(8 * base_width * 7 * 7, hidden),
        ReLU(),
        Dropout(p),
        Linear(hidden, hidden),
        ReLU(),
        Dropout(p),
        Linear(hidden, num_classes),
    )
    net = VGG(Sequential(*layers), AdaptiveAvgPool2d(7), classifier, {"classifier.0": (7, 7)})
    return net.apply(_torchvision_weights)


def _torchvision_weights(module: Module) -> None:
    if isinstance(module, Conv2d):
        init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, Linear):
        init.normal_(module.weight, 0.0, 0.01)
    if isinstance(module, Conv2d | Linear) and module.bias is not None:
        init.zeros_(module.bias)
