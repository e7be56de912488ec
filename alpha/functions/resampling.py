"""Resampling images (N, H, W, C): each row of the result a weighted sum of rows, each column one of columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.autograd import Function
from alpha.autograd.composing import returned
from alpha.engine import WeightedPairs
from alpha.functions.operands import call
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]


class Axis(NamedTuple):
    """What one axis of an image becomes: its length before and after, and steps in the input per step in the output."""

    input: int
    output: int
    ratio: float


Axes = tuple[Axis, Axis]
"""Rows and columns."""

Triple = tuple[Array, Array, Array]
"""Output positions, in order; the input positions that they are made of; their weights."""


class Resample(Function):
    """Sums of weighted rows of images, and of weighted columns.

    ``kind``: a key of ``KINDS``. ``reverse``: the gradient of such sums instead.
    """

    fresh = True

    def forward(self, x: Tensor, axes: Axes, kind: str, reverse: bool = False) -> Tensor:
        self.axes, self.kind, self.reverse = axes, kind, reverse
        return resampled(x, axes, kind, reverse)

    def backward(self, grad: Tensor) -> Tensor:
        found: Tensor = Resample.apply(grad, self.axes, self.kind, not self.reverse)
        return found

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return returned(self, grad, lambda g: call(Resample, g, self.axes, self.kind))


def resampled(x: Tensor, axes: Axes, kind: str, reverse: bool) -> Tensor:
    """The images, or, where ``reverse``, the gradient of those that they are made of."""
    return x.storage.engine.resample(x, pairs(axes[0], kind, reverse), pairs(axes[1], kind, reverse))


# -- what each position of an axis is made of --------------------------------------------------------------------------


@caches.kept
def pairs(axis: Axis, kind: str, reverse: bool) -> WeightedPairs:
    """For each output position (each input position where ``reverse``) the others that it meets, with their weights.

    A neighbour of weight 0 stays: an infinity there makes NaN, in PyTorch too.
    """
    outputs, places, weights = KINDS[kind](axis)
    if not reverse:
        return WeightedPairs.make(outputs, places, weights, axis.output)
    order = np.argsort(places, kind="stable")
    return WeightedPairs.make(places[order], outputs[order], weights[order], axis.input)


@caches.kept
def sources(axis: Axis) -> Array:
    """The input position that each output position takes: floor(i * ratio), rounded as PyTorch's for float32.

    (For float64 PyTorch's depend on its memory layout.) An axis that keeps its length or doubles it has exact positions
    whatever the ratio.
    """
    positions = np.arange(axis.output)
    if axis.output in (axis.input, 2 * axis.input):
        return positions // (axis.output // axis.input)
    found: Array = np.floor(positions.astype(np.float32) * np.float32(axis.ratio)).astype(np.int64)
    return found.clip(max=axis.input - 1)


def _nearest(axis: Axis) -> Triple:
    """One input position for each output position."""
    return np.arange(axis.output), sources(axis), np.ones(axis.output)


def _nearest_centre(axis: Axis) -> Triple:
    """The input position in which each output position's centre lies: floor((i + 0.5) * ratio)."""
    places = np.floor((np.arange(axis.output) + 0.5) * axis.ratio).astype(np.int64).clip(max=axis.input - 1)
    return np.arange(axis.output), places, np.ones(axis.output)


def _linear(axis: Axis, align_corners: bool) -> Triple:
    """Two neighbours, each weighted by its nearness."""
    low, high, share = _neighbours(axis, align_corners)
    outputs = np.repeat(np.arange(axis.output), 2)
    return outputs, np.stack([low, high], 1).reshape(-1), np.stack([1 - share, share], 1).reshape(-1)


def _cubic(axis: Axis, align_corners: bool) -> Triple:
    """Four neighbours, weighted by the cubic convolution of A = -0.75; beyond the ends the last one is repeated."""
    positions = np.arange(axis.output)
    if align_corners:
        place = positions * ((axis.input - 1) / max(axis.output - 1, 1))
    else:
        place = (positions + 0.5) * axis.ratio - 0.5
    first = np.floor(place).astype(np.int64)
    taps = first[:, None] + np.arange(-1, 3)
    weights = _cubic_convolution(np.abs(place[:, None] - taps), -0.75)
    return np.repeat(positions, 4), taps.clip(0, axis.input - 1).reshape(-1), weights.reshape(-1)


def _cubic_convolution(distance: Array, a: float) -> Array:
    """Keys' kernel with the slope ``a`` at 1."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    found: Array = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return found


def _smoothed(axis: Axis, reach: int, align_corners: bool) -> Triple:
    """A triangle (reach 1) or cubic (reach 2, A = -0.5) of the output's step, over all inputs that it holds."""
    step = (axis.input - 1) / max(axis.output - 1, 1) if align_corners else axis.ratio
    wide = max(step, 1.0)
    centres = step * (np.arange(axis.output) + 0.5)
    first = np.maximum((centres - reach * wide + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach * wide + 0.5).astype(np.int64), axis.input)
    lengths = np.maximum(last - first, 0)
    owners = np.repeat(np.arange(axis.output), lengths)
    places = first[owners] + np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    distance = np.abs(places - centres[owners] + 0.5) / wide
    weights = np.maximum(1 - distance, 0) if reach == 1 else _cubic_convolution(distance, -0.5)
    return owners, places, weights / np.bincount(owners, weights, axis.output)[owners]


def _neighbours(axis: Axis, align_corners: bool) -> tuple[Array, Array, Array]:
    """Each output position's two input positions and the share of the second: floor(s), the next, and s - floor(s).

    s is i * (input - 1) / (output - 1) with aligned corners, else max(0, (i + 0.5) * ratio - 0.5).
    """
    positions = np.arange(axis.output)
    if axis.output == axis.input:
        place = positions * 1.0
    elif align_corners:
        place = positions * ((axis.input - 1) / max(axis.output - 1, 1))
    else:
        place = np.maximum(0, (positions + 0.5) * axis.ratio - 0.5)
    low = np.minimum(place.astype(np.int64), axis.input - 1)
    return low, np.minimum(low + 1, axis.input - 1), np.clip(place - low, 0, 1)


def _windows(axis: Axis) -> Triple:
    """Output positions, the input positions that their windows hold, and weights: each window's mean.

    Window i reaches from floor(i * input / output) to ceil((i + 1) * input / output).
    """
    outputs = np.arange(axis.output)
    first, last = outputs * axis.input // axis.output, -(-(outputs + 1) * axis.input // axis.output)
    lengths = last - first
    owners = np.repeat(outputs, lengths)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owners, first[owners] + places, 1 / lengths[owners]


KINDS: dict[str, Callable[[Axis], Triple]] = {
    "nearest": _nearest,
    "nearest-exact": _nearest_centre,
    "mean": _windows,
    **{
        f"{name}{', corners' if corners else ''}": partial(function, align_corners=corners)
        for name, function in (
            ("linear", _linear),
            ("cubic", _cubic),
            ("smooth linear", partial(_smoothed, reach=1)),
            ("smooth cubic", partial(_smoothed, reach=2)),
        )
        for corners in (False, True)
    },
}
"""What each output position of an axis is made of, by the kind of resampling."""
