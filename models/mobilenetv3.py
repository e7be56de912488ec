"""MobileNetV3 (Howard et al., arXiv 1905.02244) with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from alpha import Tensor, nn
from alpha.errors import ArgumentError, described
from alpha.models.parts import (
    Conv2dNormActivation,
    ImageNetwork,
    Layers,
    SqueezeExcitation,
    draw_weights,
    fan_out_normal,
    make_divisible,
    narrow_normal,
)
from alpha.models.registry import builder

_Row = tuple[int, int, int, int, bool, str, int]

_LARGE: tuple[_Row, ...] = (
    (16, 3, 16, 16, False, "RE", 1),
    (16, 3, 64, 24, False, "RE", 2),
    (24, 3, 72, 24, False, "RE", 1),
    (24, 5, 72, 40, True, "RE", 2),
    (40, 5, 120, 40, True, "RE", 1),
    (40, 5, 120, 40, True, "RE", 1),
    (40, 3, 240, 80, False, "HS", 2),
    (80, 3, 200, 80, False, "HS", 1),
    (80, 3, 184, 80, False, "HS", 1),
    (80, 3, 184, 80, False, "HS", 1),
    (80, 3, 480, 112, True, "HS", 1),
    (112, 3, 672, 112, True, "HS", 1),
    (112, 5, 672, 160, True, "HS", 2),
    (160, 5, 960, 160, True, "HS", 1),
    (160, 5, 960, 160, True, "HS", 1),
)
"""The blocks of the paper's table 1: input channels, filter, expanded channels, output channels, squeeze, activation,
stride. The last three are the tail."""

_SMALL: tuple[_Row, ...] = (
    (16, 3, 16, 16, True, "RE", 2),
    (16, 3, 72, 24, False, "RE", 2),
    (24, 3, 88, 24, False, "RE", 1),
    (24, 5, 96, 40, True, "HS", 2),
    (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 120, 48, True, "HS", 1),
    (48, 5, 144, 48, True, "HS", 1),
    (48, 5, 288, 96, True, "HS", 2),
    (96, 5, 576, 96, True, "HS", 1),
    (96, 5, 576, 96, True, "HS", 1),
)
"""The blocks of the paper's table 2."""


_SQUEEZE = partial(SqueezeExcitation, scale_activation=nn.Hardsigmoid)


class InvertedResidualConfig:
    """Channels, filter, squeeze, activation, stride and dilation of one block.

    Args:
        input_channels, expanded_channels, out_channels: before ``width_mult``.
        kernel: side of the depthwise filter.
        use_se: whether the channels are squeezed and excited.
        activation: ``"HS"`` for Hardswish, ``"RE"`` for ReLU.
        stride, dilation: the depthwise convolution's.
        width_mult: factor of the numbers of channels, which are then made multiples of 8.
    """

    def __init__(
        self,
        input_channels: int,
        kernel: int,
        expanded_channels: int,
        out_channels: int,
        use_se: bool,
        activation: str,
        stride: int,
        dilation: int,
        width_mult: float,
    ) -> None:
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.kernel = kernel
        self.expanded_channels = self.adjust_channels(expanded_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.use_se, self.use_hs = use_se, activation == "HS"
        self.stride, self.dilation = stride, dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        """The multiple of 8 near so many channels times a factor."""
        return make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """A 1x1 convolution to more channels, a depthwise one, squeeze and excitation, and a 1x1 convolution to fewer."""

    def __init__(
        self,
        cnf: InvertedResidualConfig,
        norm_layer: Layers,
        se_layer: Layers = _SQUEEZE,
    ) -> None:
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ArgumentError(f"[InvertedResidual] expected stride as 1 or 2, got {described(cnf.stride)}")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.out_channels = cnf.out_channels
        inner, activation = cnf.expanded_channels, nn.Hardswish if cnf.use_hs else nn.ReLU
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer)
        layers: list[nn.Module] = []
        if inner != cnf.input_channels:
            layers.append(conv(cnf.input_channels, inner, 1, activation_layer=activation))
        stride = 1 if cnf.dilation > 1 else cnf.stride
        layers.append(
            conv(inner, inner, cnf.kernel, stride, groups=inner, dilation=cnf.dilation, activation_layer=activation)
        )
        if cnf.use_se:
            layers.append(se_layer(inner, make_divisible(inner // 4, 8)))
        layers.append(conv(inner, cnf.out_channels, 1, activation_layer=None))
        self.block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        y: Tensor = self.block(x)
        return y + x if self.use_res_connect else y


class MobileNetV3(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        inverted_residual_setting: the blocks.
        last_channel: length of the hidden linear layer's result.
        num_classes: length of the result's last axis.
        block: a class in the place of InvertedResidual.
        norm_layer: makes a normalisation from a number of channels; BatchNorm2d of eps 0.001 and momentum 0.01 by
            default.
        dropout: before the last linear layer.
    """

    def __init__(
        self,
        inverted_residual_setting: Sequence[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Layers | None = None,
        norm_layer: Layers | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ArgumentError("[MobileNetV3] expected inverted_residual_setting with at least one block, got none")
        block = block or InvertedResidual
        norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.Hardswish)
        inputs, outputs = inverted_residual_setting[0].input_channels, inverted_residual_setting[-1].out_channels
        self.features = nn.Sequential(
            conv(3, inputs, stride=2),
            *(block(cnf, norm) for cnf in inverted_residual_setting),
            conv(outputs, 6 * outputs, kernel_size=1),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * outputs, last_channel),
            nn.Hardswish(inplace=True),
            nn.Dropout(dropout, inplace=True),
            nn.Linear(last_channel, num_classes),
        )
        draw_weights(self, fan_out_normal, narrow_normal)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]


def _mobilenet_v3(
    rows: Sequence[_Row],
    last_channel: int,
    width_mult: float = 1.0,
    reduced_tail: bool = False,
    dilated: bool = False,
    **config: Any,
) -> MobileNetV3:
    """The paper's blocks.

    Args:
        rows: the blocks; the last three are the tail.
        last_channel: length of the hidden linear layer's result.
        width_mult: factor of the numbers of channels.
        reduced_tail: whether the tail has half of the channels.
        dilated: whether the tail dilates its filters in place of its stride.
        config: as for MobileNetV3.
    """
    divider = 2 if reduced_tail else 1
    setting = []
    for place, (inputs, kernel, inner, outputs, squeezed, activation, stride) in enumerate(rows):
        behind = place - (len(rows) - 3)  # 0 for the first block of the tail
        within, out = divider if behind > 0 else 1, divider if behind >= 0 else 1
        channels = (inputs // within, kernel, inner // within, outputs // out)
        dilation = 2 if dilated and behind >= 0 else 1
        setting.append(InvertedResidualConfig(*channels, squeezed, activation, stride, dilation, width_mult))
    last = InvertedResidualConfig.adjust_channels(last_channel // divider, width_mult)
    return MobileNetV3(setting, last, **config)


mobilenet_v3_large = builder("mobilenet_v3_large", _mobilenet_v3, _LARGE, 1280)
mobilenet_v3_small = builder("mobilenet_v3_small", _mobilenet_v3, _SMALL, 1024)
