"""VGG16 and VGG19: Simonyan & Zisserman, arXiv 1409.1556, in two styles.

``"paper"``: the networks for CIFAR-10 of Zhang et al., arXiv 2306.15951. LeakyReLU after each convolution, a BatchNorm
behind the last one of a block, three small linear layers. ``"torchvision"``: torchvision's topology
without BatchNorm and its names, so that its weights fit (``from_torch``).
"""

from __future__ import annotations

from collections.abc import Mapping

from alpha import Tensor
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
_NORMALISED = {"vgg16": 4, "vgg19": 5}  # how many of the paper's blocks end with a BatchNorm


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
        self.flattened_maps = dict(flattened_maps)

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
) -> VGG:
    """VGG16.

    At 10 classes the paper's has 14,877,514 parameters; at 1000 torchvision's has 138,357,544.

    Args:
        num_classes: length of the result's last axis.
        style: ``"paper"`` or ``"torchvision"``.
        base_width: channels of the first block; the others have 2, 4, 8 and 8 times as many, the linear layers in
            proportion.
        dropout: by default 0.1 in the paper style and 0.5 in torchvision's; 0 turns it off.
        image_size: side of the paper style's images, a multiple of 32, 32 by default: its first linear layer is made
            for them. torchvision's pools whatever maps it gets.
    """
    return _vgg("vgg16", num_classes, style, base_width, dropout, image_size)


def vgg19(
    num_classes: int = 10,
    style: str = "paper",
    *,
    base_width: int = 64,
    dropout: float | None = None,
    image_size: int | None = None,
) -> VGG:
    """VGG19; arguments as for vgg16.

    At 10 classes the paper's has 20,186,954 parameters; at 1000 torchvision's has 143,667,240.
    """
    return _vgg("vgg19", num_classes, style, base_width, dropout, image_size)


def _vgg(
    name: str, num_classes: int, style: str, base_width: int, dropout: float | None, image_size: int | None
) -> VGG:
    positive(num_classes, "num_classes", name)
    positive(base_width, "base_width", name)
    if choice(style, ("paper", "torchvision"), "style", name) == "paper":
        size = positive(32 if image_size is None else image_size, "image_size", name)
        if size % 32:
            raise ArgumentError(
                f"[{name}] expected image_size to be a multiple of 32, got {size}: it is halved 5 times"
            )
        return _paper(name, num_classes, base_width, 0.1 if dropout is None else dropout, size // 32)
    if image_size is not None:
        raise ArgumentError(
            f'[{name}] expected no image_size with style="torchvision", which takes any, got {image_size}: leave it out'
        )
    return _torchvision(name, num_classes, base_width, 0.5 if dropout is None else dropout)


def _paper(name: str, num_classes: int, base_width: int, p: float, maps: int) -> VGG:
    layers: list[Module] = []
    inputs = 3
    for block, count in enumerate(_CONVOLUTIONS[name]):
        outputs = base_width * min(2**block, 8)
        for _ in range(count):
            layers += [Conv2d(inputs, outputs, 3, padding=1, bias=False), LeakyReLU()]
            inputs = outputs
        layers += [BatchNorm2d(outputs)] if block < _NORMALISED[name] else []
        layers += [MaxPool2d(2)]
    classifier = Sequential(
        Linear(8 * base_width * maps * maps, 4 * base_width, bias=False),
        LeakyReLU(),
        Dropout(p),
        Linear(4 * base_width, 2 * base_width, bias=False),
        LeakyReLU(),
        Dropout(p),
        Linear(2 * base_width, num_classes),
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
