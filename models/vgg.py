"""VGG (Simonyan and Zisserman, arXiv 1409.1556) with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha import Tensor, nn
from alpha.models.parts import ImageNetwork, draw_weights, fan_out_normal, narrow_normal
from alpha.models.registry import builder
from alpha.nn.arguments import positive

_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions of each block by the number of layers with weights."""
_WIDTHS = (64, 128, 256, 512, 512)


class VGG(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        features: the convolutions, as ``make_layers`` gives them.
        num_classes: length of the result's last axis.
        init_weights: whether the weights are drawn as torchvision draws them, or as each layer does.
        dropout: behind the two hidden linear layers.
    """

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )
        self.flattened_maps = self._flattened_maps(classifier_0=(7, 7))
        if init_weights:
            draw_weights(self, fan_out_normal, narrow_normal)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]


def make_layers(cfg: Sequence[int | str], batch_norm: bool = False) -> nn.Sequential:
    """A 3x3 convolution and a ReLU for each number of channels, a max-pool for each ``"M"``."""
    layers: list[nn.Module] = []
    inputs = 3
    for entry in cfg:
        if entry == "M":
            layers.append(nn.MaxPool2d(2, 2))
        else:
            outputs = positive(entry, 'cfg, apart from "M",', "make_layers")
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            layers += [nn.BatchNorm2d(outputs)] if batch_norm else []
            layers.append(nn.ReLU(inplace=True))
            inputs = outputs
    return nn.Sequential(*layers)


def _vgg(depth: int, batch_norm: bool, **config: Any) -> VGG:
    """The network with so many layers that have weights; ``config`` as for VGG."""
    cfg: list[int | str] = []
    for width, count in zip(_WIDTHS, _CONVOLUTIONS[depth], strict=True):
        cfg += [width] * count + ["M"]
    return VGG(make_layers(cfg, batch_norm), **config)


vgg11 = builder("vgg11", _vgg, 11, False)
vgg11_bn = builder("vgg11_bn", _vgg, 11, True)
vgg13 = builder("vgg13", _vgg, 13, False)
vgg13_bn = builder("vgg13_bn", _vgg, 13, True)
vgg16 = builder("vgg16", _vgg, 16, False)
vgg16_bn = builder("vgg16_bn", _vgg, 16, True)
vgg19 = builder("vgg19", _vgg, 19, False)
vgg19_bn = builder("vgg19_bn", _vgg, 19, True)
