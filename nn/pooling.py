"""Pooling layers over sequences, images and volumes; see the functions of ``alpha.nn.functional`` for what they do.

Arguments are those of ``MaxPool2d``, ``AvgPool2d`` and ``AdaptiveAvgPool2d``, with one number or one per axis.
"""

from __future__ import annotations

from typing import Any

from alpha import Tensor
from alpha import functions as F
from alpha.nn.function_layer import FunctionLayer

_MAX = "kernel_size stride padding dilation return_indices ceil_mode"
_UNPOOL = "kernel_size stride padding"


class _Pool(FunctionLayer):
    """Base of those whose stride is the window's size unless given."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if vars(self)["stride"] is None:
            self.stride = self.kernel_size


class MaxPool1d(_Pool, function=F.max_pool1d, options=_MAX, axes=1):
    """The largest value in each window of sequences (N, L, C)."""


class MaxPool2d(_Pool, function=F.max_pool2d, options=_MAX, axes=2):
    """The largest value in each window.

    Args:
        kernel_size: the window's size.
        stride: step from one window to the next; by default the window's size.
        padding: rows and columns on each side that never win.
        dilation: step from one element of the window to the next.
        return_indices: whether the places of the values are returned too, for ``MaxUnpool2d``.
        ceil_mode: whether a last window may reach over the edge.
        layout: the order of axes, as for ``Conv2d``.
    """


class MaxPool3d(_Pool, function=F.max_pool3d, options=_MAX, axes=3):
    """The largest value in each window of volumes (N, D, H, W, C)."""


class AvgPool1d(_Pool, function=F.avg_pool1d, axes=1):
    """The mean of each window of sequences (N, L, C)."""


class AvgPool2d(_Pool, function=F.avg_pool2d, axes=2):
    """The mean of each window.

    Args:
        kernel_size: the window's size.
        stride: step from one window to the next; by default the window's size.
        padding: rows and columns of zeros on each side.
        ceil_mode: whether a last window may reach over the edge.
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: by what sums are divided instead of their count.
        layout: the order of axes, as for ``Conv2d``.
    """


class AvgPool3d(_Pool, function=F.avg_pool3d, axes=3):
    """The mean of each window of volumes (N, D, H, W, C)."""


class LPPool1d(FunctionLayer, function=F.lp_pool1d, axes=1):
    """(sum of x^p)^(1/p) over each window of sequences (N, L, C), p the ``norm_type``."""


class LPPool2d(FunctionLayer, function=F.lp_pool2d, axes=2):
    """(sum of x^p)^(1/p) over each window of images (N, H, W, C), p the ``norm_type``."""


class LPPool3d(FunctionLayer, function=F.lp_pool3d, axes=3):
    """(sum of x^p)^(1/p) over each window of volumes (N, D, H, W, C), p the ``norm_type``."""


class AdaptiveAvgPool1d(FunctionLayer, function=F.adaptive_avg_pool1d, axes=1):
    """Means over windows that cover sequences (N, L, C)."""


class AdaptiveAvgPool2d(FunctionLayer, function=F.adaptive_avg_pool2d, axes=2):
    """Means over windows that cover the image, so many that the result has a given size; 1 is the global mean.

    Args:
        output_size: (rows, columns) of the result, or one number for both; None keeps the input's.
        layout: the order of axes, as for ``Conv2d``.
    """


class AdaptiveAvgPool3d(FunctionLayer, function=F.adaptive_avg_pool3d, axes=3):
    """Means over windows that cover volumes (N, D, H, W, C)."""


class AdaptiveMaxPool1d(FunctionLayer, function=F.adaptive_max_pool1d, axes=1):
    """Maxima over windows that cover sequences (N, L, C)."""


class AdaptiveMaxPool2d(FunctionLayer, function=F.adaptive_max_pool2d, axes=2):
    """Maxima over windows that cover images (N, H, W, C)."""


class AdaptiveMaxPool3d(FunctionLayer, function=F.adaptive_max_pool3d, axes=3):
    """Maxima over windows that cover volumes (N, D, H, W, C)."""


class FractionalMaxPool2d(FunctionLayer, function=F.fractional_max_pool2d):
    """Maxima over windows of images that begin at random places."""


class FractionalMaxPool3d(FunctionLayer, function=F.fractional_max_pool3d):
    """Maxima over windows of volumes that begin at random places."""


class _Unpool(_Pool):
    """Base of the reverses of maximum pooling."""

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Any:
        """Maxima and their places to what was pooled; ``output_size`` where several sizes would fit."""
        window = (self.kernel_size, self.stride, self.padding)
        return self.function(self._seen(input), indices, *window, output_size, layout=self.layout)


class MaxUnpool1d(_Unpool, function=F.max_unpool1d, inputs=2, options=_UNPOOL, axes=1):
    """Maxima of sequences put back at their places."""


class MaxUnpool2d(_Unpool, function=F.max_unpool2d, inputs=2, options=_UNPOOL, axes=2):
    """Maxima of images put back at their places."""


class MaxUnpool3d(_Unpool, function=F.max_unpool3d, inputs=2, options=_UNPOOL, axes=3):
    """Maxima of volumes put back at their places."""
