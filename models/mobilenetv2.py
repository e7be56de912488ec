"""MobileNetV2 (Sandler et al., arXiv 1801.04381) with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence

from alpha import Tensor, nn
from alpha import functions as F
from alpha.errors import ArgumentError, described
from alpha.models.parts import (
    Conv2dNormActivation,
    ImageNetwork,
    Layers,
    draw_weights,
    fan_out_normal,
    make_divisible,
    narrow_normal,
)
from alpha.models.registry import builder

_SETTING = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and the first block's stride of each stage."""


class InvertedResidual(nn.Module):
    """A 1x1 convolution to more channels, a depthwise 3x3 and a 1x1 to fewer, added to x where shapes agree."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: float, norm_layer: Layers | None = None) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ArgumentError(f"[InvertedResidual] expected stride as 1 or 2, got {described(stride)}")
        norm, inner = norm_layer or nn.BatchNorm2d, round(inp * expand_ratio)
        self.stride, self.out_channels = stride, oup
        self.use_res_connect = stride == 1 and inp == oup
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, inner, 1, norm_layer=norm, activation_layer=nn.ReLU6))
        layers.append(
            Conv2dNormActivation(inner, inner, stride=stride, groups=inner, norm_layer=norm, activation_layer=nn.ReLU6)
        )
        self.conv = nn.Sequential(*layers, nn.Conv2d(inner, oup, 1, bias=False), norm(oup))

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``inp`` channels to images of ``oup``."""
        y: Tensor = self.conv(x)
        return x + y if self.use_res_connect else y


class MobileNetV2(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        num_classes: length of the result's last axis.
        width_mult: factor of all numbers of channels.
        inverted_residual_setting: expansion, channels, blocks and the first block's stride of each stage.
        round_nearest: what numbers of channels are multiples of.
        block: a class in the place of InvertedResidual.
        norm_layer: makes a normalisation from a number of channels; BatchNorm2d by default.
        dropout: before the linear layer.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: Sequence[Sequence[int]] | None = None,
        round_nearest: int = 8,
        block: Layers | None = None,
        norm_layer: Layers | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        block, norm = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        setting = _SETTING if inverted_residual_setting is None else inverted_residual_setting
        if not setting or any(len(stage) != 4 for stage in setting):
            raise ArgumentError(
                "[MobileNetV2] expected inverted_residual_setting as stages of expansion, channels, blocks and stride, "
                f"got {described(setting)}"
            )
        inputs = make_divisible(32 * width_mult, round_nearest)
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        layers: list[nn.Module] = [
            Conv2dNormActivation(3, inputs, stride=2, norm_layer=norm, activation_layer=nn.ReLU6)
        ]
        for expansion, channels, blocks, first_stride in setting:
            outputs = make_divisible(channels * width_mult, round_nearest)
            for stride in [first_stride] + [1] * (blocks - 1):
                layers.append(block(inputs, outputs, stride, expand_ratio=expansion, norm_layer=norm))
                inputs = outputs
        layers.append(Conv2dNormActivation(inputs, self.last_channel, 1, norm_layer=norm, activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        draw_weights(self, fan_out_normal, narrow_normal)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        pooled = F.adaptive_avg_pool2d(self.features(x), (1, 1), layout=self.layout)
        return self.classifier(pooled.flatten(1))  # type: ignore[no-any-return]


mobilenet_v2 = builder("mobilenet_v2", MobileNetV2)
