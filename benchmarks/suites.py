"""The convolution layers that the operator benchmark measures, by suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alpha.geometry import Geometry


@dataclass(frozen=True)
class Layer:
    """A convolution of square images with a square filter, everything but the batch."""

    name: str
    size: int
    in_channels: int
    out_channels: int
    filter: int
    stride: int
    padding: int
    operators: Sequence[str] = ("conv", "deconv", "dilated")
    dilation: int = 1
    groups: int = 1

    @property
    def geometry(self) -> Geometry:
        """The layer's index arithmetic."""
        sides = ((n, n) for n in (self.size, self.filter, self.stride, self.padding, self.dilation))
        return Geometry.make(*sides)

    @property
    def shape(self) -> dict[str, Any]:
        """What a reader of the results needs to know of it: (H, W, C) of both images, the filter's steps."""
        geometry = self.geometry
        return {
            "input": [*geometry.input, self.in_channels],
            "output": [*geometry.output, self.out_channels],
            "filter": list(geometry.filter),
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def nominal_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of one operator, those with the padding's zeros counted in."""
        return 2e-9 * self.geometry.nominal * batch * self.in_channels * self.out_channels / self.groups

    def useful_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of one operator that multiplies no zero of padding, stride or dilation."""
        return 2e-9 * self.geometry.macs(batch, self.in_channels, self.out_channels, self.groups)


# The distinct layers of the paper's ResNet18 on 32x32 images; strided shortcuts have the shapes of the strided blocks.
_RESNET18 = (
    Layer("stem", 32, 3, 64, 7, 2, 3),
    Layer("64", 16, 64, 64, 3, 1, 1),
    Layer("64-128", 16, 64, 128, 3, 2, 1),
    Layer("128", 8, 128, 128, 3, 1, 1),
    Layer("128-256", 8, 128, 256, 3, 2, 1),
    Layer("256", 4, 256, 256, 3, 1, 1),
    Layer("256-512", 4, 256, 512, 3, 2, 1),
    Layer("512", 2, 512, 512, 3, 1, 1),
)

# The paper's comparison of operators: each on output maps of halving size (dY's, for the gradients) and growing depth.
_MAPS = ((128, 64), (64, 64), (32, 128), (24, 128), (16, 256), (8, 256), (4, 512), (2, 512))
_PAPER = tuple(
    Layer(f"{side}x{side} s{stride} {size}", size * stride, depth, depth, side, stride, side // 2, operators)
    for stride, operators in ((1, ("conv",)), (2, ("deconv", "dilated")))
    for side in (3, 5)
    for size, depth in _MAPS
)

# Depthwise 3x3: a filter for each channel, on the maps of networks made of them.
_DEPTHWISE = tuple(
    Layer(f"{channels} {size}x{size} s{stride}", size, channels, channels, 3, stride, 1, groups=channels)
    for size in (56, 28, 14, 7)
    for channels in (32, 64, 128, 256, 512)
    for stride in (1, 2)
)

SUITES = {"resnet18": _RESNET18, "paper": _PAPER, "depthwise": _DEPTHWISE}

BATCHES = {"resnet18": (128, 512), "paper": (128, 512), "depthwise": (1, 8, 32)}
"""Images, unless asked otherwise."""

LAYOUTS = {"depthwise": ("channels_last",)}
"""PyTorch's memory layouts that are measured on the processor, of suites that name them; elsewhere both."""

PAPER = "paper"

EQUALISED = {PAPER: {"cpu": 9.7, "gpu": 77.3}}
"""Suites whose batches are such that every layer has this much nominal work, in GFLOP, unless asked otherwise."""


def equal_batch(layer: Layer, gflop: float) -> int:
    """The batch whose nominal work comes nearest, rounded to multiples that fill tiles: of 8, and of 32 from 32 on."""
    batch = gflop / layer.nominal_gflop(1)
    grain = 32 if batch >= 32 else 8 if batch >= 8 else 1
    return max(1, round(batch / grain) * grain)


OPERATORS = {"conv": "forward", "deconv": "input gradient", "dilated": "weight gradient"}
"""The three operators of C-K-S, each with the direction of training that it serves."""
