"""The CPU engine's problems: what a call asks for, with 1 x 1 convolutions flattened to products of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from alpha.conv import problem as shared
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.dtypes import computed_in
from alpha.geometry import Geometry
from alpha.tensor import Tensor

RUN_CHANNELS = 16
"""With fewer channels than this a row of taps, if contiguous with their channels, is read as one long tap."""


@dataclass(frozen=True)
class Problem(shared.Problem):
    """What a plan is made for.

    Attributes:
        are_pairs: whether what is summed over (channels; images of a filter gradient) comes in words of two bfloat16.
        rounds: whether an algorithm is to make factors of bfloat16 itself.
    """

    are_pairs: bool = False
    rounds: bool = False

    def __hash__(self) -> int:
        return self._hash

    @property
    def contiguous_runs(self) -> bool:
        """Whether a row of taps is one run of memory in x, and has so few channels that this matters."""
        return (
            self.group_in < RUN_CHANNELS
            and self.groups == 1
            and self.geometry.columns.dilation == 1
            and self.x_strides[2] == self.in_channels
        )


def dense_problem(
    operator: str, geometry: Geometry, images: int, in_channels: int, out_channels: int, groups: int
) -> Problem:
    """The problem of float32 images without gaps in the engine's order, (H, W, N, C) in memory."""
    x = shared.dense_strides(geometry.input, images, in_channels)
    y = shared.dense_strides(geometry.output, images, out_channels)
    return Problem(operator, geometry, images, in_channels, out_channels, groups, 4, x, y)


POINT = Geometry.make((1, 1), (1, 1))


def flattened(problem: Problem) -> Problem:
    """A 1 x 1 convolution's pixels as images of one pixel, if x and y lie without gaps in the same order."""
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
def in_order(problem: Problem) -> Problem:
    """The problem of copies of the images that are read, in the engine's order; the same one where they lie so."""
    g, x, y = problem.geometry, problem.x_strides, problem.y_strides
    if problem.images == 1 or g is POINT:
        return problem
    if problem.operator != INPUT_GRAD:
        x = shared.dense_strides(g.input, problem.images, problem.in_channels)
    if problem.operator != FORWARD:
        y = shared.dense_strides(g.output, problem.images, problem.out_channels)
    if (x, y) == (problem.x_strides, problem.y_strides):
        return problem
    return flattened(replace(problem, x_strides=x, y_strides=y))


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
    """The problem of a call, flattened; equal calls get the same object, by which plans are found fast.

    ``sizes``: images, channels of x, channels of y.
    """
    x, y = ((strides[0], strides[1], strides[2]) for strides in (x_strides, y_strides))
    return flattened(Problem(operator, geometry, *sizes, groups, item, x, y))


def problem_of(operator: str, x: Tensor, y: Tensor, geometry: Geometry, groups: int) -> Problem:
    """The problem of these images; EngineError unless they have the geometry's sizes, on which plans' offsets rely."""
    shared.check_sizes(x.shape, y.shape, geometry)
    sizes = x.shape[0], x.shape[3], y.shape[3]
    return called(operator, geometry, sizes, groups, computed_in(x.dtype).itemsize, x.strides, y.strides)
