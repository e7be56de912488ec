"""MNASNet B1 (Tan et al., arXiv 1807.11626) with torchvision's names."""

from __future__ import annotations

from functools import partial

from alpha import Tensor, nn
from alpha import functions as F
from alpha.arguments import number
from alpha.errors import ArgumentError
from alpha.models.parts import ImageNetwork, draw_weights, fan_out_normal, make_divisible
from alpha.models.registry import builder

_MOMENTUM = 1 - 0.9997
_STACKS = ((3, 2, 3, 3), (5, 2, 3, 3), (5, 2, 6, 3), (3, 1, 6, 2), (5, 2, 6, 4), (3, 1, 6, 1))
"""Filter, stride, expansion and blocks of each stack."""


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs, momentum=_MOMENTUM)]


class _InvertedResidual(nn.Module):
    """A 1x1 convolution to more channels, a depthwise one and a 1x1 to fewer, added to x where shapes agree."""

    def __init__(self, in_ch: int, out_ch: int, kernel_size: int, stride: int, expansion_factor: int) -> None:
        super().__init__()
        inner = in_ch * expansion_factor
        self.apply_residual = in_ch == out_ch and stride == 1
        self.layers = nn.Sequential(
            *_conv_bn(in_ch, inner, 1),
            nn.ReLU(inplace=True),
            *_conv_bn(inner, inner, kernel_size, stride, inner),
            nn.ReLU(inplace=True),
            *_conv_bn(inner, out_ch, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``in_ch`` channels to images of ``out_ch``."""
        y: Tensor = self.layers(x)
        return y + x if self.apply_residual else y


class MNASNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        alpha: factor of all numbers of channels.
        num_classes: length of the result's last axis.
        dropout: before the linear layer.
    """

    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        self.alpha, self.num_classes = number("MNASNet", "alpha", alpha), num_classes
        if not self.alpha > 0:
            raise ArgumentError(f"[MNASNet] expected alpha > 0, got {alpha}")
        first, inputs, *widths = [make_divisible(n * self.alpha, 8) for n in (32, 16, 24, 40, 80, 96, 192, 320)]
        layers: list[nn.Module] = [*_conv_bn(3, first, 3, 2), nn.ReLU(inplace=True)]
        layers += [*_conv_bn(first, first, 3, groups=first), nn.ReLU(inplace=True), *_conv_bn(first, inputs, 1)]
        for outputs, (kernel, stride, expansion, blocks) in zip(widths, _STACKS, strict=True):
            later = [_InvertedResidual(outputs, outputs, kernel, 1, expansion) for _ in range(blocks - 1)]
            layers.append(nn.Sequential(_InvertedResidual(inputs, outputs, kernel, stride, expansion), *later))
            inputs = outputs
        self.layers = nn.Sequential(*layers, *_conv_bn(inputs, 1280, 1), nn.ReLU(inplace=True))
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(1280, num_classes))
        linear = partial(nn.init.kaiming_uniform_, mode="fan_out", nonlinearity="sigmoid")
        draw_weights(self, fan_out_normal, linear)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        pooled = F.adaptive_avg_pool2d(self.layers(x), 1, layout=self.layout)
        return self.classifier(pooled.flatten(1))  # type: ignore[no-any-return]


mnasnet0_5 = builder("mnasnet0_5", MNASNet, 0.5)
mnasnet0_75 = builder("mnasnet0_75", MNASNet, 0.75)
mnasnet1_0 = builder("mnasnet1_0", MNASNet, 1.0)
mnasnet1_3 = builder("mnasnet1_3", MNASNet, 1.3)
