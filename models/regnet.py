"""RegNet (Radosavovic et al., arXiv 2003.13678) with torchvision's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from alpha import Tensor, nn
from alpha.errors import ArgumentError
from alpha.models.parts import (
    Conv2dNormActivation,
    ImageNetwork,
    Layers,
    SqueezeExcitation,
    fan_out_normal,
    make_divisible,
    narrow_normal,
)
from alpha.models.registry import builder
from alpha.nn.arguments import positive

_QUANTUM = 8
"""Widths are multiples of it."""


class BlockConfig(NamedTuple):
    """What the blocks of a stage have in common: their outputs, the size of groups, the inner width, the squeezing."""

    width: int
    group_width: int
    bottleneck_multiplier: float
    se_ratio: float | None


class SimpleStemIN(Conv2dNormActivation):
    """A 3x3 convolution of stride 2, a normalisation and an activation."""

    def __init__(self, width_in: int, width_out: int, norm_layer: Layers, activation_layer: Layers) -> None:
        super().__init__(width_in, width_out, 3, 2, norm_layer=norm_layer, activation_layer=activation_layer)


class BottleneckTransform(nn.Sequential):
    """A 1x1, a grouped 3x3 and a 1x1 convolution, with squeeze and excitation before the last where it is asked for."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Layers,
        activation_layer: Layers,
        group_width: int,
        bottleneck_multiplier: float,
        se_ratio: float | None,
    ) -> None:
        inner = round(width_out * bottleneck_multiplier)
        if inner % positive(group_width, "group_width", "BottleneckTransform"):
            raise ArgumentError(
                f"[BottleneckTransform] expected group_width that divides the inner width {inner}, got {group_width}"
            )
        convolution = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer)
        layers: dict[str, nn.Module] = {
            "a": convolution(width_in, inner, 1),
            "b": convolution(inner, inner, 3, stride, groups=inner // group_width),
        }
        if se_ratio:
            layers["se"] = SqueezeExcitation(inner, round(se_ratio * width_in), activation=activation_layer)
        layers["c"] = Conv2dNormActivation(inner, width_out, 1, norm_layer=norm_layer, activation_layer=None)
        super().__init__(layers)


class ResBottleneckBlock(ImageNetwork):
    """activation(x + f(x)), where x goes through a 1x1 convolution if f changes its shape."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Layers,
        activation_layer: Layers,
        group_width: int = 1,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ) -> None:
        super().__init__()
        self.proj = None
        if width_in != width_out or stride != 1:
            self.proj = Conv2dNormActivation(
                width_in, width_out, 1, stride, norm_layer=norm_layer, activation_layer=None
            )
        self.f = BottleneckTransform(
            width_in, width_out, stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio
        )
        self.activation = activation_layer(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        shortcut = x if self.proj is None else self.proj(x)
        return self.activation(shortcut + self.f(x))  # type: ignore[no-any-return]


class AnyStage(nn.Sequential):
    """A stage: a row of blocks, of which the first has the stride."""

    def __init__(
        self,
        width_in: int,
        stride: int,
        depth: int,
        config: BlockConfig,
        block: Layers,
        kinds: tuple[Layers, Layers],
        stage_index: int,
    ) -> None:
        layers = {}
        for place in range(depth):
            inputs, step = (width_in, stride) if place == 0 else (config.width, 1)
            layers[f"block{stage_index}-{place}"] = block(inputs, config.width, step, *kinds, *config[1:])
        super().__init__(layers)


@dataclass
class BlockParams:
    """The stages: their depths, widths, sizes of groups, inner widths as factors, and strides; the share of channels
    that squeezing leaves, None for no squeezing."""

    depths: list[int]
    widths: list[int]
    group_widths: list[int]
    bottleneck_multipliers: list[float]
    strides: list[int]
    se_ratio: float | None = None

    @classmethod
    def from_init_params(
        cls,
        depth: int,
        w_0: int,
        w_a: float,
        w_m: float,
        group_width: int,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ) -> BlockParams:
        """Block k is about w_0 + k w_a wide: the nearest w_0 w_m ** n for a whole n, rounded to a multiple of 8; blocks
        of one width are a stage. Equations 2 to 4 of the paper.

        Args:
            depth: how many blocks.
            w_0: the first one's width, a multiple of 8.
            w_a: the slope, 0 or more.
            w_m: the factor between widths, above 1.
            group_width: channels in a group of the 3x3 convolutions, at most.
            bottleneck_multiplier: the 3x3 convolutions' width relative to the block's.
            se_ratio: the share of a block's inputs that squeezing leaves.
        """
        positive(depth, "depth", "BlockParams")
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % _QUANTUM:
            raise ArgumentError(
                f"[BlockParams] expected w_a >= 0, w_m > 1 and w_0 as a positive multiple of {_QUANTUM}, got "
                f"{w_a}, {w_m} and {w_0}"
            )
        wanted = [1 + place * w_a / w_0 for place in range(depth)]
        powers = [round(math.log(width) / math.log(w_m)) for width in wanted]
        rounded = [round(w_0 * w_m**power / _QUANTUM) * _QUANTUM for power in powers]
        stages = [(width, len(list(blocks))) for width, blocks in groupby(rounded)]
        inner = [int(width * bottleneck_multiplier) for width, _ in stages]
        groups = [min(group_width, width) for width in inner]
        fitting = [make_divisible(width, size) for width, size in zip(inner, groups, strict=True)]
        return cls(
            depths=[count for _, count in stages],
            widths=[int(width / bottleneck_multiplier) for width in fitting],
            group_widths=groups,
            bottleneck_multipliers=[bottleneck_multiplier] * len(stages),
            strides=[2] * len(stages),
            se_ratio=se_ratio,
        )


class RegNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        block_params: the stages.
        num_classes: length of the result's last axis.
        stem_width: outputs of the first convolution.
        stem_type: a class in the place of SimpleStemIN. block_type: one in the place of ResBottleneckBlock.
        norm_layer: makes a normalisation from a number of channels; BatchNorm2d by default.
        activation: makes an activation; ReLU by default.
    """

    def __init__(
        self,
        block_params: BlockParams,
        num_classes: int = 1000,
        stem_width: int = 32,
        stem_type: Layers | None = None,
        block_type: Layers | None = None,
        norm_layer: Layers | None = None,
        activation: Layers | None = None,
    ) -> None:
        super().__init__()
        kinds = (norm_layer or nn.BatchNorm2d, activation or nn.ReLU)
        self.stem = (stem_type or SimpleStemIN)(3, stem_width, *kinds)
        stages: dict[str, nn.Module] = {}
        inputs = stem_width
        for number, (stride, depth, config) in enumerate(_stages(block_params), 1):
            stages[f"block{number}"] = AnyStage(
                inputs, stride, depth, config, block_type or ResBottleneckBlock, kinds, number
            )
            inputs = config.width
        self.trunk_output = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out_normal(module.weight)
        narrow_normal(self.fc.weight)
        if self.fc.bias is not None:
            nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        pooled = self.avgpool(self.trunk_output(self.stem(x)))
        return self.fc(pooled.flatten(1))  # type: ignore[no-any-return]


def _stages(params: BlockParams) -> Sequence[tuple[int, int, BlockConfig]]:
    """Stride, depth and blocks of each stage."""
    lengths = {
        len(part)
        for part in (params.depths, params.widths, params.group_widths, params.bottleneck_multipliers, params.strides)
    }
    if len(lengths) != 1 or 0 in lengths:
        raise ArgumentError(
            f"[RegNet] expected block_params with one number for each of its stages, got {params}: give lists of one "
            "length"
        )
    blocks = zip(params.widths, params.group_widths, params.bottleneck_multipliers, strict=True)
    configs = [BlockConfig(*block, params.se_ratio) for block in blocks]
    return list(zip(params.strides, params.depths, configs, strict=True))


_SIZES = BlockParams.from_init_params
_SE = 0.25

regnet_y_400mf = builder("regnet_y_400mf", RegNet, _SIZES(16, 48, 27.89, 2.09, 8, se_ratio=_SE))
regnet_y_800mf = builder("regnet_y_800mf", RegNet, _SIZES(14, 56, 38.84, 2.4, 16, se_ratio=_SE))
regnet_y_1_6gf = builder("regnet_y_1_6gf", RegNet, _SIZES(27, 48, 20.71, 2.65, 24, se_ratio=_SE))
regnet_y_3_2gf = builder("regnet_y_3_2gf", RegNet, _SIZES(21, 80, 42.63, 2.66, 24, se_ratio=_SE))
regnet_y_8gf = builder("regnet_y_8gf", RegNet, _SIZES(17, 192, 76.82, 2.19, 56, se_ratio=_SE))
regnet_y_16gf = builder("regnet_y_16gf", RegNet, _SIZES(18, 200, 106.23, 2.48, 112, se_ratio=_SE))
regnet_y_32gf = builder("regnet_y_32gf", RegNet, _SIZES(20, 232, 115.89, 2.53, 232, se_ratio=_SE))
regnet_y_128gf = builder("regnet_y_128gf", RegNet, _SIZES(27, 456, 160.83, 2.52, 264, se_ratio=_SE))
regnet_x_400mf = builder("regnet_x_400mf", RegNet, _SIZES(22, 24, 24.48, 2.54, 16))
regnet_x_800mf = builder("regnet_x_800mf", RegNet, _SIZES(16, 56, 35.73, 2.28, 16))
regnet_x_1_6gf = builder("regnet_x_1_6gf", RegNet, _SIZES(18, 80, 34.01, 2.25, 24))
regnet_x_3_2gf = builder("regnet_x_3_2gf", RegNet, _SIZES(25, 88, 26.31, 2.25, 48))
regnet_x_8gf = builder("regnet_x_8gf", RegNet, _SIZES(23, 80, 49.56, 2.88, 120))
regnet_x_16gf = builder("regnet_x_16gf", RegNet, _SIZES(22, 216, 55.59, 2.1, 128))
regnet_x_32gf = builder("regnet_x_32gf", RegNet, _SIZES(23, 320, 69.86, 2.0, 168))
