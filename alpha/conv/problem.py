"""Problem: what one call of a convolution's operator computes, as a value by which plans and choices are cached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from alpha.arguments import Shape
from alpha.errors import EngineError
from alpha.geometry import Geometry

FORWARD, INPUT_GRAD, WEIGHT_GRAD = "forward", "input_grad", "weight_grad"

OPERATORS = FORWARD, INPUT_GRAD, WEIGHT_GRAD
"""The convolution, and its gradients by input and by filter."""

TITLES = {FORWARD: "ConvV2", INPUT_GRAD: "KS-deconv-V2", WEIGHT_GRAD: "Sk-dilated-V2"}
"""The operators' names in C-K-S."""

Strides = tuple[int, int, int]
"""Strides of images over (N, H, W), in elements; channels have stride 1."""


class Side(NamedTuple):
    """The images of one side of a problem.

    Attributes:
        size: (H, W).
        channels: those of one group.
        strides: in elements over (N, H, W).
    """

    size: tuple[int, int]
    channels: int
    strides: Strides


@dataclass(frozen=True)
class Problem:
    """What a plan is made for. Engines add what their own plans depend on.

    Attributes:
        operator: one of ``OPERATORS``.
        in_channels, out_channels: of x and of y, all groups together.
        item: bytes of a number.
        x_strides, y_strides: of the convolution's input and its output, or of their gradients.
    """

    operator: str
    geometry: Geometry
    images: int
    in_channels: int
    out_channels: int
    groups: int
    item: int
    x_strides: Strides
    y_strides: Strides

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached, since every call looks up plans by it."""
        sizes = self.operator, self.images, self.in_channels, self.out_channels, self.groups, self.item
        return hash((self.geometry, sizes, self.x_strides, self.y_strides))

    @property
    def group_in(self) -> int:
        """Input channels of a group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.groups

    @property
    def by_output(self) -> bool:
        """Whether pairs are grouped by output position, as for all operators but the input gradient."""
        return self.operator != INPUT_GRAD

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Source and target of a convolution or an input gradient; x and dy of a filter gradient."""
        x = Side(self.geometry.input, self.group_in, self.x_strides)
        y = Side(self.geometry.output, self.group_out, self.y_strides)
        return (x, y) if self.by_output else (y, x)

    @property
    def macs(self) -> int:
        """Multiply-adds without those by a zero of padding, stride or dilation."""
        return self.geometry.macs(self.images, self.in_channels, self.out_channels, self.groups)


def dense_strides(size: tuple[int, int], images: int, channels: int) -> Strides:
    """Strides of images without gaps in the engines' order, (H, W, N, C) in memory."""
    return channels, size[1] * images * channels, images * channels


def check_sizes(x: Shape, y: Shape, geometry: Geometry) -> None:
    """Raises EngineError unless images of these shapes have the geometry's sizes, on which plans' offsets rely."""
    if x[1:3] != geometry.input or y[1:3] != geometry.output or x[0] != y[0]:
        raise EngineError(
            f"[convolution] expected images of {geometry.input} and results of {geometry.output}, got x: {x} and y: {y}"
        )
