"""A convolution and the BatchNorm behind it in training: the statistics are found where the convolution writes.

Where another convolution follows, it normalises what it reads, so that BatchNorm's result need not lie in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from alpha import Tensor
from alpha.functions.measured import conv2d_measured, conv2d_normalised
from alpha.functions.norm import batch_norm_of
from alpha.nn.conv import Conv2d
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.records import BatchNormState, Measurement, ToNormalise


class Waiting(NamedTuple):
    """Images whose BatchNorm and activation wait for the convolution that reads them.

    Attributes:
        given: the images, and how they are to be normalised.
        slope: of the leaky ReLU, 0 for ReLU, None for no activation.
    """

    given: ToNormalise
    slope: float | None


Images = Tensor | Waiting
"""What a convolution takes from a BatchNorm before it."""


def settled(x: Images) -> Tensor:
    """Images that wait no longer."""
    return batch_norm_of(x.given, None, x.slope) if isinstance(x, Waiting) else x


def conv_measured(conv: Module, bn: Module, x: Images, residual: Tensor | None) -> tuple[Tensor, BatchNormState | None]:
    """``conv(x)`` and the statistics that ``bn`` takes of it, for ``batch_norm_measured``; None if it has to find them.

    Args:
        conv, bn: plain layers, whose calls do nothing but run their ``forward``.
        x: images (N, H, W, C).
        residual: what ``bn`` adds.
    """
    layer: Any = conv
    if not isinstance(bn, BatchNorm2d) or not isinstance(conv, Conv2d):
        return layer(settled(x)), None
    image = x.given.x if isinstance(x, Waiting) else x
    plain = conv.layout == "NHWC" and isinstance(image, Tensor) and image.ndim == 4
    running = bn.running_in_training() if plain else None
    if running is None or not image.engine.measures_convolutions(image):
        return layer(settled(x)), None
    measurement = Measurement(running, bn.eps, (bn.weight, bn.bias), residual)
    y: Tensor
    if isinstance(x, Waiting) and conv.bias is None and conv.padding_mode == "zeros" and _fits(conv, image):
        steps = conv.stride, conv.padding, conv.dilation, conv.groups
        y = conv2d_normalised(x.given, x.slope, conv.weight, steps, measurement)
        return y, measurement.state
    image, padding = conv.padded(settled(x))
    steps = conv.stride, padding, conv.dilation, conv.groups
    y = conv2d_measured(image, conv.weight, conv.bias, steps, measurement, layout=conv.layout)
    return y, measurement.state


def _fits(conv: Conv2d, x: Tensor) -> bool:
    """Whether a convolution's filters are for such images; where they are not, ``conv2d`` has the message."""
    w = conv.weight
    return w.dtype == x.dtype and w.storage.engine is x.storage.engine and w.shape[3] * conv.groups == x.shape[3]


def waiting(bn: Module, y: Tensor, state: BatchNormState, slope: float | None) -> Images:
    """``bn`` of a result of ``conv_measured`` and its activation, for a convolution: it may be left to that."""
    layer: Any = bn
    given = layer.to_normalise(y, state)
    return Waiting(given, slope) if y.engine.normalises_in_convolutions(y) else batch_norm_of(given, None, slope)


def batch_norm_measured(
    bn: Module, y: Tensor, state: BatchNormState, residual: Tensor | None, slope: float | None
) -> Tensor:
    """``bn`` of a result of ``conv_measured``, plus the residual, and its activation."""
    layer: Any = bn
    return batch_norm_of(layer.to_normalise(y, state), residual, slope)
