"""What pooling functions share: checks of their arguments, windows as geometry, and one or three axes by two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from alpha.arguments import flag
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.conv import INPUTS, MAX_STEP
from alpha.functions.elementwise import contiguous
from alpha.functions.shape import permute, reshape, squeeze, unsqueeze
from alpha.geometry import Axis
from alpha.tensor import Tensor

Size = int | Sequence[int]
Shape = tuple[int, ...]
Spec = TypeVar("Spec")

VOLUME_ORDER = (2, 3, 1, 0, 4)
"""Memory order of volumes behind the logical (N, D, H, W, C): as their convolutions leave them."""

_COUNTS = {1: "an int", 2: "an int or a pair of them", 3: "an int or three of them"}


def per_axis(function: str, name: str, value: Any, axes: int, least: int) -> Shape:
    """One int per axis, from one int or one per axis, each at least ``least``."""
    if type(value) is int and least <= value <= MAX_STEP:
        return (value,) * axes
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    numbers = [int(v) for v in values if isinstance(v, int | np.integer) and not isinstance(v, bool)]
    numbers = numbers * axes if len(numbers) == 1 else numbers
    if len(values) not in (1, axes) or len(numbers) != axes or min(numbers) < least or max(numbers) > MAX_STEP:
        raise ArgumentError(f"[{function}] expected {name} as {_COUNTS[axes]} >= {least}, got {described(value)}")
    return tuple(numbers)


def check_images(function: str, x: Any, axes: int) -> None:
    """An error unless x is a batch of sequences, images or volumes of floats that have elements."""
    if not isinstance(x, Tensor) or not is_float(x.dtype):
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DtypeError(f"[{function}] expected a float32 or float64 tensor, got {kind}: cast it with .float()")
    if x.ndim != axes + 2 or min(x.shape[1:-1]) < 1:
        raise ShapeError(f"[{function}] expected {INPUTS[axes]}, got {x.shape}: add the missing axes")


def windows(
    function: str, x: Tensor, kernel_size: Size, stride: Any, padding: Size, dilation: Size, ceil_mode: bool
) -> tuple[tuple[Axis, ...], Shape]:
    """The axes of windows over x, and the padding asked for."""
    axes = x.ndim - 2
    kernel = per_axis(function, "kernel_size", kernel_size, axes, 1)
    same = stride is None or (isinstance(stride, list | tuple) and not stride)
    steps = kernel if same else per_axis(function, "stride", stride, axes, 1)
    pads, spread = per_axis(function, "padding", padding, axes, 0), per_axis(function, "dilation", dilation, axes, 1)
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        raise ArgumentError(
            f"[{function}] expected a padding of at most half the kernel_size {kernel}, got {pads}: windows would hold "
            "padding alone"
        )
    ceil_mode = ceil_mode if type(ceil_mode) is bool else flag(function, "ceil_mode", ceil_mode)
    found = _fitting(x.shape[1:-1], kernel, steps, pads, spread, ceil_mode)
    if found is None:
        raise ShapeError(
            f"[{function}] expected windows that fit the padded image, got x: {x.shape} with kernel_size {kernel}, "
            f"padding {pads} and dilation {spread}: use a smaller kernel or more padding"
        )
    return found, pads


@lru_cache(maxsize=1024)
def _fitting(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> tuple[Axis, ...] | None:
    """The axes; None where the windows do not fit."""
    axes = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        extent = (k - 1) * d + 1
        if n + 2 * p < extent:
            return None
        axes.append(Axis(n, k, s, (p, p + (_overhang(n, extent, s, p) if ceil_mode else 0)), d))
    return tuple(axes)


def _overhang(size: int, extent: int, stride: int, padding: int) -> int:
    """Padding to add at the high end so that a last, incomplete window fits, if it starts inside input or padding."""
    rest = (size + 2 * padding - extent) % stride
    if rest == 0:
        return 0
    start = size + 2 * padding - extent - rest + stride - padding
    return stride - rest if start < size else 0


def by_planes(x: Tensor, specs: Sequence[Spec], alone: Spec, pool: Callable[[Tensor, Spec, Spec], Tensor]) -> Tensor:
    """Sequences, images or volumes pooled by a function of images, which is told of rows and columns.

    A sequence is an image of one row, for which ``alone`` stands. A volume's planes are pooled as images, and then its
    depths as the rows of images of one column.
    """
    if len(specs) == 1:
        return squeeze(pool(unsqueeze(x, 1), alone, specs[0]), 1)
    if len(specs) == 2:
        return pool(x, specs[0], specs[1])
    planes = pool(planes_of(x), specs[1], specs[2])
    return volumes_of(pool(depths_of(planes, x.shape), specs[0], alone), planes.shape, x.shape)


def planes_of(x: Tensor) -> Tensor:
    """The planes of volumes as images (D * N, H, W, C)."""
    n, d, h, w, c = x.shape
    return reshape(permute(contiguous(x, VOLUME_ORDER), (1, 0, 2, 3, 4)), (d * n, h, w, c))


def depths_of(planes: Tensor, shape: Shape) -> Tensor:
    """Planes, of volumes of a shape, as images (H * W, D, 1, N * C) whose rows are the depths; a view of planes."""
    n, d, c = shape[0], shape[1], shape[4]
    h, w = planes.shape[1:3]
    return reshape(permute(reshape(planes, (d, n, h, w, c)), (2, 3, 0, 1, 4)), (h * w, d, 1, n * c))


def volumes_of(depths: Tensor, planes: Shape, shape: Shape) -> Tensor:
    """Images as ``depths_of`` makes them, of so large planes, as volumes; a view."""
    return permute(reshape(depths, (*planes[1:3], depths.shape[1], shape[0], shape[4])), (3, 2, 0, 1, 4))


ALONE = Axis(1, 1)
"""The axis of an image of one row or one column."""
