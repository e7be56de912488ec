"""EfficientNet (Tan and Le, arXiv 1905.11946) and EfficientNetV2 (arXiv 2104.00298) with torchvision's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from alpha import Tensor, nn
from alpha.errors import ArgumentError, described
from alpha.models.parts import (
    Conv2dNormActivation,
    ImageNetwork,
    Layers,
    SqueezeExcitation,
    StochasticDepth,
    draw_weights,
    fan_out_normal,
    make_divisible,
)
from alpha.models.registry import builder


@dataclass
class FusedMBConvConfig:
    """A stage of FusedMBConv blocks.

    Attributes:
        expand_ratio: the inner channels, in units of the input's.
        kernel: side of the filters.
        stride: of the stage's first block.
        input_channels: of the first block.
        out_channels: of all blocks.
        num_layers: the number of blocks.
        block: a class in the place of FusedMBConv.
    """

    expand_ratio: float
    kernel: int
    stride: int
    input_channels: int
    out_channels: int
    num_layers: int
    block: Layers | None = None

    @staticmethod
    def adjust_channels(channels: int, width_mult: float, min_value: int | None = None) -> int:
        """The multiple of 8 near so many channels times a factor."""
        return make_divisible(channels * width_mult, 8, min_value)

    def make(self, probability: float, norm_layer: Layers) -> nn.Module:
        """A block."""
        return (self.block or FusedMBConv)(self, probability, norm_layer)


@dataclass
class MBConvConfig(FusedMBConvConfig):
    """A stage of MBConv blocks; attributes as of FusedMBConvConfig."""

    def make(self, probability: float, norm_layer: Layers) -> nn.Module:
        """A block."""
        return (self.block or MBConv)(self, probability, norm_layer)


class _Residual(nn.Module):
    """Base of the blocks: ``block(x)``, added to x where shapes agree, with stochastic depth."""

    def __init__(self, cnf: FusedMBConvConfig, stochastic_depth_prob: float, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ArgumentError(f"[{type(self).__name__}] expected stride as 1 or 2, got {described(cnf.stride)}")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = cnf.out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        y: Tensor = self.block(x)
        return self.stochastic_depth(y) + x if self.use_res_connect else y


class MBConv(_Residual):
    """A 1x1 convolution to more channels, a depthwise one, squeeze and excitation, and a 1x1 convolution."""

    def __init__(
        self,
        cnf: FusedMBConvConfig,
        stochastic_depth_prob: float,
        norm_layer: Layers,
        se_layer: Layers = SqueezeExcitation,
    ) -> None:
        inner = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        layers: list[nn.Module] = []
        if inner != cnf.input_channels:
            layers.append(conv(cnf.input_channels, inner, kernel_size=1))
        layers.append(conv(inner, inner, cnf.kernel, cnf.stride, groups=inner))
        squeezed = max(1, cnf.input_channels // 4)
        layers.append(se_layer(inner, squeezed, activation=partial(nn.SiLU, inplace=True)))
        layers.append(conv(inner, cnf.out_channels, kernel_size=1, activation_layer=None))
        super().__init__(cnf, stochastic_depth_prob, layers)


class FusedMBConv(_Residual):
    """A convolution to more channels and a 1x1 back; where there are no more channels, one convolution alone."""

    def __init__(self, cnf: FusedMBConvConfig, stochastic_depth_prob: float, norm_layer: Layers) -> None:
        inner = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        if inner == cnf.input_channels:
            layers = [conv(inner, cnf.out_channels, cnf.kernel, cnf.stride)]
        else:
            layers = [
                conv(cnf.input_channels, inner, cnf.kernel, cnf.stride),
                conv(inner, cnf.out_channels, kernel_size=1, activation_layer=None),
            ]
        super().__init__(cnf, stochastic_depth_prob, layers)


class EfficientNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        inverted_residual_setting: the stages.
        dropout: before the linear layer.
        stochastic_depth_prob: that of the last block; it grows from 0 at the first one on.
        num_classes: length of the result's last axis.
        norm_layer: makes a normalisation from a number of channels; BatchNorm2d by default.
        last_channel: channels of the last convolution; None for four times the last stage's.
    """

    def __init__(
        self,
        inverted_residual_setting: Sequence[FusedMBConvConfig],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Layers | None = None,
        last_channel: int | None = None,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ArgumentError("[EfficientNet] expected inverted_residual_setting with at least one stage, got none")
        norm = norm_layer or nn.BatchNorm2d
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        layers: list[nn.Module] = [conv(3, inverted_residual_setting[0].input_channels, stride=2)]
        total, place = sum(stage.num_layers for stage in inverted_residual_setting), 0
        for stage in inverted_residual_setting:
            later = replace(stage, input_channels=stage.out_channels, stride=1)
            blocks = []
            for number in range(stage.num_layers):
                blocks.append((later if number else stage).make(stochastic_depth_prob * place / total, norm))
                place += 1
            layers.append(nn.Sequential(*blocks))
        inputs = inverted_residual_setting[-1].out_channels
        outputs = 4 * inputs if last_channel is None else last_channel
        self.features = nn.Sequential(*layers, conv(inputs, outputs, kernel_size=1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(outputs, num_classes))
        bound = 1 / math.sqrt(num_classes)
        draw_weights(self, fan_out_normal, partial(nn.init.uniform_, a=-bound, b=bound))

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]


_Stage = tuple[int, int, int, int, int, int]
"""The fields of FusedMBConvConfig and of MBConvConfig, without the block."""

_STAGES: tuple[_Stage, ...] = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
"""Stages of B0."""


def _scaled(width_mult: float, depth_mult: float, dropout: float, **config: Any) -> EfficientNet:
    """B0 with more channels and more blocks; ``config`` as for EfficientNet."""
    setting = []
    for expansion, kernel, stride, inputs, outputs, blocks in _STAGES:
        first, width = (MBConvConfig.adjust_channels(count, width_mult) for count in (inputs, outputs))
        setting.append(MBConvConfig(expansion, kernel, stride, first, width, math.ceil(blocks * depth_mult)))
    return EfficientNet(setting, dropout, **config)


def _second(fused: Sequence[_Stage], others: Sequence[_Stage], **config: Any) -> EfficientNet:
    """Version 2: stages of FusedMBConv, then of MBConv; ``config`` as for EfficientNet."""
    setting = [FusedMBConvConfig(*stage) for stage in fused] + [MBConvConfig(*stage) for stage in others]
    return EfficientNet(setting, **{"last_channel": 1280, **config})


_SLOW = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
_WIDE = partial(nn.BatchNorm2d, eps=0.001)

efficientnet_b0 = builder("efficientnet_b0", _scaled, width_mult=1.0, depth_mult=1.0, dropout=0.2)
efficientnet_b1 = builder("efficientnet_b1", _scaled, width_mult=1.0, depth_mult=1.1, dropout=0.2)
efficientnet_b2 = builder("efficientnet_b2", _scaled, width_mult=1.1, depth_mult=1.2, dropout=0.3)
efficientnet_b3 = builder("efficientnet_b3", _scaled, width_mult=1.2, depth_mult=1.4, dropout=0.3)
efficientnet_b4 = builder("efficientnet_b4", _scaled, width_mult=1.4, depth_mult=1.8, dropout=0.4)
efficientnet_b5 = builder("efficientnet_b5", _scaled, width_mult=1.6, depth_mult=2.2, dropout=0.4, norm_layer=_SLOW)
efficientnet_b6 = builder("efficientnet_b6", _scaled, width_mult=1.8, depth_mult=2.6, dropout=0.5, norm_layer=_SLOW)
efficientnet_b7 = builder("efficientnet_b7", _scaled, width_mult=2.0, depth_mult=3.1, dropout=0.5, norm_layer=_SLOW)
efficientnet_v2_s = builder(
    "efficientnet_v2_s",
    _second,
    ((1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4)),
    ((4, 3, 2, 64, 128, 6), (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)),
    dropout=0.2,
    norm_layer=_WIDE,
)
efficientnet_v2_m = builder(
    "efficientnet_v2_m",
    _second,
    ((1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5)),
    ((4, 3, 2, 80, 160, 7), (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18), (6, 3, 1, 304, 512, 5)),
    dropout=0.3,
    norm_layer=_WIDE,
)
efficientnet_v2_l = builder(
    "efficientnet_v2_l",
    _second,
    ((1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7)),
    ((4, 3, 2, 96, 192, 10), (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25), (6, 3, 1, 384, 640, 7)),
    dropout=0.4,
    norm_layer=_WIDE,
)
