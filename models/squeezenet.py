"""SqueezeNet (Iandola et al., arXiv 1602.07360) with torchvision's names."""

from __future__ import annotations

from alpha import Tensor, nn
from alpha.models.parts import ImageNetwork, draw_weights, narrow_normal
from alpha.models.registry import builder
from alpha.nn.arguments import choice

_WIDTHS = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of each Fire's squeezing convolution, and of each of its two expanding ones."""
_POOLED = {"1_0": (0, 3, 7), "1_1": (0, 2, 4)}
"""The Fires before which a max-pool stands."""


class Fire(ImageNetwork):
    """A 1x1 convolution to few channels, and of these a 1x1 and a 3x3 convolution side by side."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``inplanes`` channels to images of the two expanded numbers' sum."""
        x = self.squeeze_activation(self.squeeze(x))
        narrow, wide = self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))
        return self._cat([narrow, wide])


class SqueezeNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        version: ``"1_0"``, the paper's, or ``"1_1"``, which needs less than half of the arithmetic.
        num_classes: length of the result's last axis.
        dropout: before the last convolution.
    """

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.num_classes = num_classes
        first = choice(version, ("1_0", "1_1"), "version", "SqueezeNet") == "1_0"
        inputs = 96 if first else 64
        layers: list[nn.Module] = [nn.Conv2d(3, inputs, 7 if first else 3, 2), nn.ReLU(inplace=True)]
        for place, (squeezed, expanded) in enumerate(_WIDTHS):
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True)] if place in _POOLED[version] else []
            layers.append(Fire(inputs, squeezed, expanded, expanded))
            inputs = 2 * expanded
        last = nn.Conv2d(inputs, num_classes, 1)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        draw_weights(self, nn.init.kaiming_uniform_)
        narrow_normal(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.features(x)).flatten(1)  # type: ignore[no-any-return]


squeezenet1_0 = builder("squeezenet1_0", SqueezeNet, "1_0")
squeezenet1_1 = builder("squeezenet1_1", SqueezeNet, "1_1")
