"""Resampling images (N, H, W, C): each row of the result a weighted sum of rows, each column one of columns."""

from __future__ import annotations

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


class Resample(Function):
    """Sums of weighted rows of images, and of weighted columns.

    ``kind``: ``"nearest"``; ``"bilinear"``, with aligned corners ``"corners"``; ``"mean"`` over windows.
    """

    fresh = True

    def forward(self, x: Tensor, axes: Axes, kind: str) -> Tensor:
        self.axes, self.kind = axes, kind
        return resampled(x, axes, kind, False)

    def backward(self, grad: Tensor) -> Tensor:
        return resampled(grad, self.axes, self.kind, True)

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
    outputs = np.arange(axis.output)
    if kind == "nearest":
        places, weights = sources(axis), np.ones(axis.output)
    elif kind == "mean":
        outputs, places, weights = _windows(axis)
    else:
        low, high, share = _neighbours(axis, kind == "corners")
        outputs = np.repeat(outputs, 2)
        places, weights = np.stack([low, high], 1).reshape(-1), np.stack([1 - share, share], 1).reshape(-1)
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


def _windows(axis: Axis) -> tuple[Array, Array, Array]:
    """Output positions, the input positions that their windows hold, and weights: each window's mean.

    Window i reaches from floor(i * input / output) to ceil((i + 1) * input / output).
    """
    outputs = np.arange(axis.output)
    first, last = outputs * axis.input // axis.output, -(-(outputs + 1) * axis.input // axis.output)
    lengths = last - first
    owners = np.repeat(outputs, lengths)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owners, first[owners] + places, 1 / lengths[owners]
