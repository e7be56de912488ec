"""A convolution and the BatchNorm behind it in training: the statistics are found where the convolution writes."""

from __future__ import annotations

from typing import Any

from alpha import Tensor
from alpha.functions.measured import conv2d_measured
from alpha.functions.norm import batch_norm_of
from alpha.nn.conv import Conv2d
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.records import BatchNormState, Measurement


def conv_measured(conv: Module, bn: Module, x: Tensor, residual: Tensor | None) -> tuple[Tensor, BatchNormState | None]:
    """``conv(x)`` and the statistics that ``bn`` takes of it, for ``batch_norm_measured``; None if it has to find them.

    Args:
        conv, bn: plain layers, whose calls do nothing but run their ``forward``.
        x: images (N, H, W, C).
        residual: what ``bn`` adds.
    """
    layer: Any = conv
    if not isinstance(bn, BatchNorm2d) or not isinstance(conv, Conv2d):
        return layer(x), None
    running = bn.running_in_training() if conv.layout == "NHWC" and isinstance(x, Tensor) and x.ndim == 4 else None
    if running is None or not x.engine.measures_convolutions(x):
        return layer(x), None
    measurement = Measurement(running, bn.eps, (bn.weight, bn.bias), residual)
    x, padding = conv.padded(x)
    steps = conv.stride, padding, conv.dilation, conv.groups
    y: Tensor = conv2d_measured(x, conv.weight, conv.bias, steps, measurement, layout=conv.layout)
    return y, measurement.state


def batch_norm_measured(
    bn: Module, y: Tensor, state: BatchNormState, residual: Tensor | None, slope: float | None
) -> Tensor:
    """``bn`` of a result of ``conv_measured``, plus the residual, and its activation."""
    layer: Any = bn
    return batch_norm_of(layer.to_normalise(y)._replace(state=state), residual, slope)
