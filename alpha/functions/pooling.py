"""Pooling of images (N, H, W, C): maximum, average, adaptive average."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.arguments import flag
from alpha.autograd import Function
from alpha.autograd.composing import returned
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions import resampling
from alpha.functions.conv import MAX_STEP
from alpha.functions.elementwise import mul
from alpha.functions.images import of_images
from alpha.functions.operands import call, check_room
from alpha.geometry import Axis, Geometry
from alpha.launches import AVG_POOL2D, AVG_POOL2D_FUNCTION, MAX_POOL2D, MAX_POOL2D_FUNCTION
from alpha.tensor import Tensor

__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]

Size = int | Sequence[int]


class MaxPool2d(Function):
    """Maxima over windows; the gradient goes to the element that won."""

    fresh = True

    def forward(self, x: Tensor, geometry: Geometry) -> Tensor:
        out, taps = x.engine.max_pool2d(x, geometry, self.needs[0])
        self.geometry = geometry
        self.save(taps)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        (taps,) = self.saved
        return grad.engine.max_pool2d_grad(grad, taps, self.geometry)


class AvgPool2d(Function):
    """Means over windows."""

    fresh = True

    def forward(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        self.geometry, self.count_padding = geometry, count_padding
        return x.engine.avg_pool2d(x, geometry, count_padding)

    def backward(self, grad: Tensor) -> Tensor:
        return grad.engine.avg_pool2d_grad(grad, self.geometry, self.count_padding)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return returned(self, grad, lambda g: call(AvgPool2d, g, self.geometry, self.count_padding))


@of_images("x", guesses=True)
def max_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    *,
    layout: str | None = None,
) -> Tensor:
    """Maxima over windows of ``kernel_size``, ``stride`` (by default the kernel's size) apart.

    x: (N, H, W, C); returns (N, OH, OW, C) with OH = floor((H + 2p - d(k - 1) - 1) / s) + 1, ``ceil`` with
    ``ceil_mode`` (no window starts beyond the input). Padding never wins; NaN always does.
    """
    given = (x, kernel_size, stride, padding, dilation, ceil_mode)
    found: Tensor | None = MAX_POOL2D_FUNCTION.launch_outside(*given)
    if found is not None:
        return found
    kernel, stride_, padding_ = _window("max_pool2d", kernel_size, stride, padding)
    dilation_ = _pair("max_pool2d", "dilation", dilation, 1)
    _check_image("max_pool2d", x)
    geometry = _geometry("max_pool2d", x, kernel, stride_, padding_, dilation_, ceil_mode)
    out: Tensor = MaxPool2d.apply(x, geometry)
    if not out.requires_grad:
        x.engine.alias(MAX_POOL2D, (x, geometry, False), MAX_POOL2D_FUNCTION, given)
    return out


@of_images("x", guesses=True)
def avg_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    layout: str | None = None,
) -> Tensor:
    """Means over windows of ``kernel_size``, ``stride`` (by default the kernel's size) apart.

    x: (N, H, W, C); sizes as in ``max_pool2d``. Zeros of the padding count as elements unless ``count_include_pad`` is
    False; what ``ceil_mode`` lets a window reach beyond the padding never counts.
    """
    given = (x, kernel_size, stride, padding, ceil_mode, count_include_pad)
    found: Tensor | None = AVG_POOL2D_FUNCTION.launch_outside(*given)
    if found is not None:
        return found
    kernel, stride_, padding_ = _window("avg_pool2d", kernel_size, stride, padding)
    _check_image("avg_pool2d", x)
    geometry = _geometry("avg_pool2d", x, kernel, stride_, padding_, (1, 1), ceil_mode)
    count_include_pad = flag("avg_pool2d", "count_include_pad", count_include_pad)
    out: Tensor = AvgPool2d.apply(x, geometry, count_include_pad)
    if ceil_mode and count_include_pad:
        axes = (geometry.rows, geometry.columns)
        if any(axis.padding[1] > p for axis, p in zip(axes, padding_, strict=True)):
            return mul(out, _correction(x, axes, padding_))
    if not out.requires_grad:
        x.engine.alias(AVG_POOL2D, (x, geometry, count_include_pad), AVG_POOL2D_FUNCTION, given)
    return out


@of_images("x", guesses=True)
def adaptive_avg_pool2d(x: Tensor, output_size: Any, *, layout: str | None = None) -> Tensor:
    """Means over OH x OW windows that cover the image: rows floor(i H / OH) to ceil((i + 1) H / OH), columns alike.

    x: (N, H, W, C); ``output_size``: OH = OW, or (OH, OW), None for the input's own. (1, 1) is the global mean, whose
    result keeps its axes: (N, 1, 1, C).
    """
    _check_image("adaptive_avg_pool2d", x)
    if type(output_size) is int and 1 <= output_size <= MAX_STEP:
        rows = columns = output_size
    else:
        sizes = output_size if isinstance(output_size, list | tuple) else (output_size, output_size)
        wanted = tuple(length if size is None else size for size, length in zip(sizes, x.shape[1:3], strict=False))
        rows, columns = _pair("adaptive_avg_pool2d", "output_size", wanted if len(sizes) == 2 else sizes, 1)
    check_room(x.engine, (x.shape[0], rows, columns, x.shape[3]), x.dtype)
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


def _correction(x: Tensor, axes: tuple[Axis, Axis], padding: tuple[int, int]) -> Tensor:
    """(1, OH, OW, 1): a window's full size over its elements inside the input and the padding asked for."""

    def factors() -> np.ndarray[Any, Any]:
        rows, columns = (_excess(axis, p) for axis, p in zip(axes, padding, strict=True))
        found: np.ndarray[Any, Any] = np.multiply.outer(rows, columns)[None, :, :, None].astype(x.dtype)
        return found

    return x.engine.constant(("avg_pool2d correction", axes, padding, x.dtype), factors)


def _excess(axis: Axis, padding: int) -> np.ndarray[Any, Any]:
    starts = np.arange(axis.output) * axis.stride - axis.padding[0]
    found: np.ndarray[Any, Any] = axis.filter / (np.minimum(starts + axis.filter, axis.input + padding) - starts)
    return found


def _geometry(
    function: str,
    x: Tensor,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    ceil_mode: bool,
) -> Geometry:
    ceil_mode = ceil_mode if type(ceil_mode) is bool else flag(function, "ceil_mode", ceil_mode)
    found = _fitting(x.shape[1:3], kernel, stride, padding, dilation, ceil_mode)
    if found is None:
        raise ShapeError(
            f"[{function}] expected windows that fit the padded image, got x: {x.shape} with kernel_size {kernel}, "
            f"padding {padding} and dilation {dilation}: use a smaller kernel or more padding"
        )
    return found


@lru_cache(maxsize=1024)
def _fitting(
    size: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    ceil_mode: bool,
) -> Geometry | None:
    """The geometry; None where the windows do not fit."""
    axes = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        extent = (k - 1) * d + 1
        if n + 2 * p < extent:
            return None
        axes.append(Axis(n, k, s, (p, p + (_overhang(n, extent, s, p) if ceil_mode else 0)), d))
    return Geometry(axes[0], axes[1])


def _overhang(size: int, extent: int, stride: int, padding: int) -> int:
    """Padding to add at the high end so that a last, incomplete window fits, if it starts inside input or padding."""
    rest = (size + 2 * padding - extent) % stride
    if rest == 0:
        return 0
    start = size + 2 * padding - extent - rest + stride - padding
    return stride - rest if start < size else 0


def _window(
    function: str, kernel_size: Size, stride: Size | None, padding: Size
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    kernel = _pair(function, "kernel_size", kernel_size, 1)
    steps = kernel if stride is None else _pair(function, "stride", stride, 1)
    pads = _pair(function, "padding", padding, 0)
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        raise ArgumentError(
            f"[{function}] expected a padding of at most half the kernel_size {kernel}, got {pads}: windows would hold "
            "padding alone"
        )
    return kernel, steps, pads


def _pair(function: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """(rows, columns) of an int or a pair of ints."""
    if type(value) is int and least <= value <= MAX_STEP:
        return value, value
    values = tuple(value) if isinstance(value, list | tuple) else (value, value)
    numbers = [int(v) for v in values if isinstance(v, int | np.integer) and not isinstance(v, bool)]
    if len(values) != 2 or len(numbers) != 2 or min(numbers) < least or max(numbers) > MAX_STEP:
        raise ArgumentError(
            f"[{function}] expected {name} as an int >= {least} or a pair of them, got {described(value)}"
        )
    return numbers[0], numbers[1]


def _check_image(function: str, x: Any) -> None:
    if not isinstance(x, Tensor) or not is_float(x.dtype):
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DtypeError(f"[{function}] expected a float32 or float64 tensor, got {kind}: cast it with .float()")
    if x.ndim != 4 or min(x.shape[1:3]) < 1:
        raise ShapeError(f"[{function}] expected images (N, H, W, C), got {x.shape}: add the missing axes")
