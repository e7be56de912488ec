"""The convolution layers that the operator benchmark measures, by suite."""

from __future__ import annotations

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

    @property
    def geometry(self) -> Geometry:
        """Its index arithmetic."""
        sides = ((n, n) for n in (self.size, self.filter, self.stride, self.padding))
        return Geometry.make(*sides)

    @property
    def shape(self) -> dict[str, Any]:
        """What a reader of the results needs to know of it: (H, W, C) of both images, filter, stride and padding."""
        geometry = self.geometry
        return {
            "input": [*geometry.input, self.in_channels],
            "output": [*geometry.output, self.out_channels],
            "filter": list(geometry.filter),
            "stride": self.stride,
            "padding": self.padding,
        }

    def nominal_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of one operator, those with the padding's zeros counted in."""
        return 2e-9 * self.geometry.nominal * batch * self.in_channels * self.out_channels

    def useful_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of one operator that multiplies no zero of padding, stride or dilation."""
        return 2e-9 * self.geometry.macs(batch, self.in_channels, self.out_channels)


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

SUITES = {"resnet18": _RESNET18}

OPERATORS = {"conv": "forward", "deconv": "input gradient", "dilated": "weight gradient"}
"""The three operators of C-K-S, each with the direction of training that it serves."""
