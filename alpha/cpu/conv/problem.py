"""Problem: what one call of an operator is to compute, as a value that plans and choices are kept by."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from alpha.errors import EngineError
from alpha.geometry import Geometry
from alpha.tensor import Tensor

FORWARD, INPUT_GRAD, WEIGHT_GRAD = "forward", "input_grad", "weight_grad"

OPERATORS = FORWARD, INPUT_GRAD, WEIGHT_GRAD
"""The convolution, and its gradients by input and by filter."""

RUN_CHANNELS = 16
"""Below so many channels a row of taps whose channels are contiguous is read as one long tap (3-channel stems)."""


class Side(NamedTuple):
    """The images of one side of a problem.

    Attributes:
        size: (H, W).
        channels: those of one group.
        strides: in elements over (N, H, W).
    """

    size: tuple[int, int]
    channels: int
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class Problem:
    """What a plan is made for. Strides in elements over (N, H, W); channels have stride 1.

    Attributes:
        operator: one of ``OPERATORS``.
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
    x_strides: tuple[int, int, int]
    y_strides: tuple[int, int, int]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Kept: plans are looked up by it in every call."""
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
        """Whether what meets is grouped by output position, as for all but the input gradient."""
        return self.operator != INPUT_GRAD

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Source and target of a convolution or an input gradient; x and dy of a filter gradient."""
        x = Side(self.geometry.input, self.group_in, self.x_strides)
        y = Side(self.geometry.output, self.group_out, self.y_strides)
        return (x, y) if self.by_output else (y, x)

    @property
    def contiguous_runs(self) -> bool:
        """Whether a row of taps is one run of memory in x, and short enough a depth each for that to matter."""
        return (
            self.group_in < RUN_CHANNELS
            and self.groups == 1
            and self.geometry.columns.dilation == 1
            and self.x_strides[2] == self.in_channels
        )

    @property
    def macs(self) -> int:
        """Multiply-adds that meet no zero of padding, stride or dilation."""
        return self.geometry.macs(self.images, self.in_channels, self.out_channels, self.groups)


def dense_problem(
    operator: str, geometry: Geometry, images: int, in_channels: int, out_channels: int, groups: int
) -> Problem:
    """Of float32 images without gaps in the engine's order: (H, W, N, C) in memory."""
    strides = [
        (channels, width * images * channels, images * channels)
        for width, channels in ((geometry.columns.input, in_channels), (geometry.columns.output, out_channels))
    ]
    return Problem(operator, geometry, images, in_channels, out_channels, groups, 4, strides[0], strides[1])


POINT = Geometry.make((1, 1), (1, 1))


def flattened(problem: Problem) -> Problem:
    """A 1 x 1 convolution's pixels as images of one pixel, where x and y lie without gaps in the same order."""
    g = problem.geometry
    if not g.pointwise or g is POINT or problem.group_in == 1:  # depthwise: no products of matrices
        return problem
    axes = sorted(zip(problem.x_strides, problem.y_strides, (problem.images, *g.input), strict=True))
    x_step, y_step = problem.in_channels, problem.out_channels
    for x_stride, y_stride, length in axes:
        if length > 1 and (x_stride, y_stride) != (x_step, y_step):
            return problem
        x_step, y_step = x_step * length, y_step * length
    images, x_step, y_step = problem.images * math.prod(g.input), problem.in_channels, problem.out_channels
    return replace(problem, geometry=POINT, images=images, x_strides=(x_step,) * 3, y_strides=(y_step,) * 3)


@lru_cache(maxsize=4096)
def called(
    operator: str,
    geometry: Geometry,
    sizes: tuple[int, int, int],
    groups: int,
    item: int,
    x_strides: tuple[int, ...],
    y_strides: tuple[int, ...],
) -> Problem:
    """The problem of a call, flattened: the same object for the same call, which plans are found by fast.

    ``sizes``: images, channels of x, channels of y.
    """
    x, y = ((strides[0], strides[1], strides[2]) for strides in (x_strides, y_strides))
    return flattened(Problem(operator, geometry, *sizes, groups, item, x, y))


def problem_of(operator: str, x: Tensor, y: Tensor, geometry: Geometry, groups: int) -> Problem:
    """The problem of these images; EngineError unless they have the geometry's sizes, which plans' offsets trust."""
    if x.shape[1:3] != geometry.input or y.shape[1:3] != geometry.output or x.shape[0] != y.shape[0]:
        raise EngineError(
            f"[convolution] expected images of {geometry.input} and results of {geometry.output}, got x: {x.shape} and "
            f"y: {y.shape}"
        )
    sizes = x.shape[0], x.shape[3], y.shape[3]
    return called(operator, geometry, sizes, groups, x.dtype.itemsize, x.strides, y.strides)
