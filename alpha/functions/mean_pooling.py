"""Mean pooling of sequences, images and volumes: over windows, over windows that adapt, and by other norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.arguments import flag, number, whole
from alpha.autograd import Function
from alpha.errors import ArgumentError
from alpha.functions import resampling
from alpha.functions.activation import relu
from alpha.functions.conv import MAX_STEP
from alpha.functions.elementwise import abs, mul, pow, sign
from alpha.functions.images import of_images
from alpha.functions.operands import call, check_room
from alpha.functions.pool_windows import ALONE, Shape, Size, by_planes, check_images, per_axis, windows
from alpha.geometry import Axis, Geometry
from alpha.launches import AVG_POOL2D, AVG_POOL2D_FUNCTION
from alpha.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
]


class AvgPool2d(Function):
    """Means over windows."""

    fresh = True

    def forward(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        self.geometry, self.count_padding = geometry, count_padding
        return x.engine.avg_pool2d(x, geometry, count_padding)

    def backward(self, grad: Tensor) -> Tensor:
        return grad.engine.avg_pool2d_grad(grad, self.geometry, self.count_padding)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """The same as a function of the gradient."""
        return call(AvgPool2dGrad, grad, self.geometry, self.count_padding)


class AvgPool2dGrad(Function):
    """The gradient of means over windows."""

    fresh = True

    def forward(self, grad: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        self.geometry, self.count_padding = geometry, count_padding
        return grad.engine.avg_pool2d_grad(grad, geometry, count_padding)

    def backward(self, grad: Tensor) -> Tensor:
        return call(AvgPool2d, grad, self.geometry, self.count_padding)


# -- over windows ------------------------------------------------------------------------------------------------


@of_images("input", guesses=True, axes=2)
def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """Means over windows of ``kernel_size``, ``stride`` (by default the kernel's size) apart.

    input: (N, H, W, C), or one image (H, W, C); sizes as in ``max_pool2d``. Zeros of the padding count as elements
    unless ``count_include_pad`` is False; what ``ceil_mode`` lets a window reach beyond the padding never counts.
    ``divisor_override``: by what sums are divided instead.
    """
    if divisor_override is not None:
        window = (kernel_size, stride, padding, 1, ceil_mode)
        return _averaged("avg_pool2d", 2, input, window, count_include_pad, divisor_override)
    given = (input, kernel_size, stride, padding, ceil_mode, count_include_pad)
    found: Tensor | None = AVG_POOL2D_FUNCTION.launch_outside(*given)
    if found is not None:
        return found
    out = _averaged("avg_pool2d", 2, input, (kernel_size, stride, padding, 1, ceil_mode), count_include_pad, None)
    if not out.requires_grad and not ceil_mode:
        rows, columns = windows("avg_pool2d", input, kernel_size, stride, padding, 1, False)[0]
        followed = (input, Geometry(rows, columns), flag("avg_pool2d", "count_include_pad", count_include_pad))
        input.engine.alias(AVG_POOL2D, followed, AVG_POOL2D_FUNCTION, given)
    return out


@of_images("input", axes=1)
def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    layout: str | None = None,
) -> Tensor:
    """``avg_pool2d`` of sequences (N, L, C), or one (L, C)."""
    return _averaged("avg_pool1d", 1, input, (kernel_size, stride, padding, 1, ceil_mode), count_include_pad, None)


@of_images("input", axes=3)
def avg_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """``avg_pool2d`` of volumes (N, D, H, W, C), or one (D, H, W, C)."""
    window = (kernel_size, stride, padding, 1, ceil_mode)
    return _averaged("avg_pool3d", 3, input, window, count_include_pad, divisor_override)


def _averaged(
    function: str, axes: int, x: Tensor, window: tuple[Any, ...], count_include_pad: bool, divisor: int | None
) -> Tensor:
    """Means over windows, given as ``windows`` takes them."""
    check_images(function, x, axes)
    counts = flag(function, "count_include_pad", count_include_pad)
    found, pads = windows(function, x, *window)
    if divisor is not None:
        divisor, counts = whole(function, "divisor_override", divisor), True
        if divisor == 0:
            raise ArgumentError(f"[{function}] expected a divisor_override other than 0, got 0")
    out = by_planes(x, found, ALONE, lambda part, rows, columns: call(AvgPool2d, part, Geometry(rows, columns), counts))
    if divisor is not None:
        return mul(out, math.prod(axis.filter for axis in found) / divisor)
    if counts and any(axis.padding[1] > p for axis, p in zip(found, pads, strict=True)):
        return mul(out, _correction(x, found, pads))
    return out


def _correction(x: Tensor, axes: tuple[Axis, ...], padding: Shape) -> Tensor:
    """(1, OH, OW, 1): a window's full size over its elements inside the input and the padding asked for."""

    def factors() -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = np.ones(())
        for axis, p in zip(axes, padding, strict=True):
            found = np.multiply.outer(found, _excess(axis, p))
        return found[None, ..., None].astype(x.dtype)

    return x.engine.constant(("avg_pool2d correction", axes, padding, x.dtype), factors)


def _excess(axis: Axis, padding: int) -> np.ndarray[Any, Any]:
    starts = np.arange(axis.output) * axis.stride - axis.padding[0]
    found: np.ndarray[Any, Any] = axis.filter / (np.minimum(starts + axis.filter, axis.input + padding) - starts)
    return found


# -- over windows that adapt -------------------------------------------------------------------------------------


@of_images("input", guesses=True, axes=2)
def adaptive_avg_pool2d(input: Tensor, output_size: Any, *, layout: str | None = None) -> Tensor:
    """Means over OH x OW windows that cover the image: rows floor(i H / OH) to ceil((i + 1) H / OH), columns alike.

    input: (N, H, W, C), or one image (H, W, C); ``output_size``: OH = OW, or (OH, OW), None for the input's own. (1, 1)
    is the global mean, whose result keeps its axes: (N, 1, 1, C).
    """
    return _adapted("adaptive_avg_pool2d", 2, input, output_size)


@of_images("input", axes=1)
def adaptive_avg_pool1d(input: Tensor, output_size: Any, *, layout: str | None = None) -> Tensor:
    """``adaptive_avg_pool2d`` of sequences (N, L, C), or one (L, C)."""
    return _adapted("adaptive_avg_pool1d", 1, input, output_size)


@of_images("input", axes=3)
def adaptive_avg_pool3d(input: Tensor, output_size: Any, *, layout: str | None = None) -> Tensor:
    """``adaptive_avg_pool2d`` of volumes (N, D, H, W, C), or one (D, H, W, C)."""
    return _adapted("adaptive_avg_pool3d", 3, input, output_size)


def adapted_sizes(function: str, axes: int, x: Tensor, output_size: Any, least: int = 0) -> Shape:
    """The sizes of an adaptive pooling's result."""
    check_images(function, x, axes)
    if type(output_size) is int and 1 <= output_size <= MAX_STEP:
        sizes: Shape = (output_size,) * axes
    else:
        given = tuple(output_size) if isinstance(output_size, list | tuple) else (output_size,) * axes
        wanted = tuple(length if size is None else size for size, length in zip(given, x.shape[1:], strict=False))
        sizes = per_axis(function, "output_size", wanted if len(given) == axes else given, axes, least)
    check_room(x.engine, (x.shape[0], *sizes, x.shape[-1]), x.dtype)
    return sizes


def _adapted(function: str, axes: int, x: Tensor, output_size: Any) -> Tensor:
    return by_planes(x, adapted_sizes(function, axes, x, output_size, least=1), 1, _adapted_image)


def _adapted_image(x: Tensor, rows: int, columns: int) -> Tensor:
    found = _adaptive(x.shape[1], x.shape[2], rows, columns)
    if isinstance(found, Geometry):
        return call(AvgPool2d, x, found, True)
    return call(resampling.Resample, x, found, "mean")


@lru_cache(maxsize=1024)
def _adaptive(height: int, width: int, rows: int, columns: int) -> Geometry | resampling.Axes:
    """The windows where all have one size and lie side by side, else what becomes of each axis.

    All windows of a row of windows have one height, so a mean of means is the windows' mean.
    """
    if height % rows == 0 and width % columns == 0:
        sizes = (height // rows, width // columns)
        if max(sizes) <= MAX_STEP:
            return Geometry(Axis(height, sizes[0], sizes[0]), Axis(width, sizes[1], sizes[1]))
    return resampling.Axis(height, rows, height / rows), resampling.Axis(width, columns, width / columns)


# -- by other norms ----------------------------------------------------------------------------------------------


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
    *,
    layout: str | None = None,
) -> Tensor:
    """(sum of x^p over each window)^(1/p), p the ``norm_type``, of sequences; as ``avg_pool1d`` otherwise."""
    return _normed("lp_pool1d", 1, avg_pool1d, input, norm_type, (kernel_size, stride, 0, ceil_mode), layout)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
    *,
    layout: str | None = None,
) -> Tensor:
    """(sum of x^p over each window)^(1/p), p the ``norm_type``, of images; as ``avg_pool2d`` otherwise."""
    return _normed("lp_pool2d", 2, avg_pool2d, input, norm_type, (kernel_size, stride, 0, ceil_mode), layout)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
    *,
    layout: str | None = None,
) -> Tensor:
    """(sum of x^p over each window)^(1/p), p the ``norm_type``, of volumes; as ``avg_pool3d`` otherwise."""
    return _normed("lp_pool3d", 3, avg_pool3d, input, norm_type, (kernel_size, stride, 0, ceil_mode), layout)


def _normed(
    function: str,
    axes: int,
    pool: Callable[..., Tensor],
    x: Tensor,
    norm_type: float,
    window: tuple[Any, ...],
    layout: str | None,
) -> Tensor:
    """The mean times the window's size, as PyTorch's: a window that reaches over the edge counts as a full one."""
    p, kernel = number(function, "norm_type", norm_type), per_axis(function, "kernel_size", window[0], axes, 1)
    if p == 0:
        raise ArgumentError(f"[{function}] expected a norm_type other than 0, got 0")
    means = pool(pow(x, p), *window, layout=layout)
    return pow(mul(sign(means) * relu(abs(means)), math.prod(kernel)), 1 / p)
