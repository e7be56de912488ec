"""Maximum pooling of sequences, images and volumes: over windows, over windows that adapt, and its reverse."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from alpha.arguments import flag
from alpha.autograd import Function
from alpha.dtypes import int64, is_integer
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError, described
from alpha.functions.images import of_images
from alpha.functions.indexing import gather, index_select, take_along_dim
from alpha.functions.mean_pooling import adapted_sizes
from alpha.functions.nothing import nothing
from alpha.functions.operands import call, check_tensor, numbers
from alpha.functions.pool_windows import (
    ALONE,
    Shape,
    Size,
    by_planes,
    check_images,
    depths_of,
    per_axis,
    planes_of,
    volumes_of,
    windows,
)
from alpha.functions.reduction import max
from alpha.functions.shape import expand, reshape, squeeze, unsqueeze
from alpha.geometry import Geometry
from alpha.launches import MAX_POOL2D, MAX_POOL2D_FUNCTION
from alpha.tensor import Tensor

__all__ = [
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

Pair = tuple[Tensor, Tensor]


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

    def backward_in_graph(self, grad: Tensor, _: Tensor | None = None) -> Tensor:
        """The same as a function of the gradient."""
        (taps,) = self.saved
        return call(MaxPool2dGrad, grad, taps, self.geometry)


class MaxPool2dWithTaps(MaxPool2d):
    """Maxima over windows, and the tap of each."""

    def forward(self, x: Tensor, geometry: Geometry) -> Any:
        out, taps = x.engine.max_pool2d(x, geometry, True)
        self.geometry = geometry
        self.save(taps)
        return out, taps

    def backward(self, grad: Tensor, _: Tensor | None = None) -> Tensor:
        return super().backward(grad)


class MaxPool2dGrad(Function):
    """The gradient of maxima over windows."""

    fresh = True

    def forward(self, grad: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        self.geometry = geometry
        self.save(taps)
        return grad.engine.max_pool2d_grad(grad, taps, geometry)

    def backward(self, grad: Tensor) -> Tensor:
        (taps,) = self.saved
        return _picked(grad, _places(taps, self.geometry))


# -- over windows ------------------------------------------------------------------------------------------------


@of_images("input", guesses=True, axes=2)
def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
) -> Any:
    """Maxima over windows of ``kernel_size``, ``stride`` (by default the kernel's size) apart.

    input: (N, H, W, C), or one image (H, W, C); returns (N, OH, OW, C), OH = floor((H + 2p - d(k - 1) - 1) / s) + 1,
    ``ceil`` with ``ceil_mode`` (no window starts beyond the input). Padding never wins; NaN always does.
    ``return_indices``: the pair of the maxima and the places, row * W + column, at which they are.
    """
    if return_indices is False:
        given = (input, kernel_size, stride, padding, dilation, ceil_mode)
        found: Tensor | None = MAX_POOL2D_FUNCTION.launch_outside(*given)
        if found is not None:
            return found
        check_images("max_pool2d", input, 2)
        geometry = Geometry(*windows("max_pool2d", *given)[0])
        out: Tensor = MaxPool2d.apply(input, geometry)
        if not out.requires_grad:
            input.engine.alias(MAX_POOL2D, (input, geometry, False), MAX_POOL2D_FUNCTION, given)
        return out
    return _maxima("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@of_images("input", axes=1)
def max_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
) -> Any:
    """``max_pool2d`` of sequences (N, L, C), or one (L, C)."""
    return _maxima("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@of_images("input", axes=3)
def max_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
) -> Any:
    """``max_pool2d`` of volumes (N, D, H, W, C), or one (D, H, W, C); places are (depth * H + row) * W + column."""
    return _maxima("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _maxima(
    function: str,
    axes: int,
    x: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    dilation: Size,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    check_images(function, x, axes)
    found, _ = windows(function, x, kernel_size, stride, padding, dilation, ceil_mode)
    if not flag(function, "return_indices", return_indices):
        return by_planes(x, found, ALONE, lambda part, rows, cols: call(MaxPool2d, part, Geometry(rows, cols)))
    if axes == 1:
        values, places = _with_places(unsqueeze(x, 1), Geometry(ALONE, found[0]))
        return squeeze(values, 1), squeeze(places, 1)
    if axes == 2:
        return _with_places(x, Geometry(*found))
    planes, inside = _with_places(planes_of(x), Geometry(*found[1:]))
    values, depths = _with_places(depths_of(planes, x.shape), Geometry(found[0], ALONE))
    places = gather(depths_of(inside, x.shape), 1, depths) + depths * (x.shape[2] * x.shape[3])
    return tuple(volumes_of(part, planes.shape, x.shape) for part in (values, places))


def _with_places(x: Tensor, geometry: Geometry) -> Pair:
    """Maxima of images, and their places."""
    values, taps = MaxPool2dWithTaps.apply(x, geometry)
    return values, _places(taps, geometry)


def _places(taps: Tensor, geometry: Geometry) -> Tensor:
    """row * W + column of the elements at the taps; a window that holds nothing has the place of its first tap."""
    key = ("max_pool2d places", geometry)
    starts, steps = (
        taps.engine.constant((*key, part), partial(_place_table, geometry, part)) for part in ("starts", "steps")
    )
    return index_select(steps, 0, reshape(taps.long().clamp(0), (-1,))).reshape(taps.shape) + starts


def _place_table(geometry: Geometry, part: str) -> np.ndarray[Any, Any]:
    """The places of the windows' first taps, (1, OH, OW, 1), or by how much each tap is further."""
    rows, columns = (
        np.arange(axis.output) * axis.stride - axis.padding[0]
        if part == "starts"
        else np.arange(axis.filter) * axis.dilation
        for axis in (geometry.rows, geometry.columns)
    )
    found: np.ndarray[Any, Any] = np.add.outer(rows * geometry.columns.input, columns)
    return found[None, :, :, None] if part == "starts" else found.reshape(-1)


def _picked(x: Tensor, places: Tensor) -> Tensor:
    """(N, ..., C) of images, at places of each image and channel."""
    n, c = x.shape[0], x.shape[-1]
    found = gather(reshape(x, (n, -1, c)), 1, reshape(places, (n, -1, c)))
    return reshape(found, places.shape)


# -- over windows that adapt -------------------------------------------------------------------------------------


@of_images("input", axes=1)
def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: bool = False, *, layout: str | None = None
) -> Any:
    """``adaptive_max_pool2d`` of sequences (N, L, C), or one (L, C)."""
    return _adapted("adaptive_max_pool1d", 1, input, output_size, return_indices)


@of_images("input", guesses=True, axes=2)
def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: bool = False, *, layout: str | None = None
) -> Any:
    """Maxima over windows as those of ``adaptive_avg_pool2d``; ``return_indices`` as for ``max_pool2d``."""
    return _adapted("adaptive_max_pool2d", 2, input, output_size, return_indices)


@of_images("input", axes=3)
def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: bool = False, *, layout: str | None = None
) -> Any:
    """``adaptive_max_pool2d`` of volumes (N, D, H, W, C), or one (D, H, W, C)."""
    return _adapted("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _adapted(function: str, axes: int, x: Tensor, output_size: Any, return_indices: bool) -> Any:
    """An axis after the other, the last first, so that of equal elements the first in row-major order wins."""
    wanted = flag(function, "return_indices", return_indices)
    sizes = adapted_sizes(function, axes, x, output_size)
    if 0 in (x.shape[0], x.shape[-1], *sizes):
        values = nothing((x.shape[0], *sizes, x.shape[-1]), x)
        return (values, values.detach().long()) if wanted else values
    engine, values, step = x.engine, x, 1
    places: Tensor | None = None
    for axis in range(axes, 0, -1):
        length, size = values.shape[axis], sizes[axis - 1]
        table = engine.constant(("adaptive windows", length, size), partial(_window_table, length, size))
        split = (*values.shape[:axis], size, -1, *values.shape[axis + 1 :])
        flat = reshape(table, (-1,))
        values, chosen = max(reshape(index_select(values, axis, flat), split), axis + 1)
        if wanted:
            across = reshape(table, (*(1,) * axis, size, -1, *(1,) * (values.ndim - axis - 1)))
            across = expand(across, (*chosen.shape[: axis + 1], table.shape[1], *chosen.shape[axis + 1 :]))
            here = squeeze(take_along_dim(across, unsqueeze(chosen, axis + 1), axis + 1), axis + 1) * step
            if places is not None:
                before = reshape(index_select(places, axis, flat), split)
                here = here + squeeze(take_along_dim(before, unsqueeze(chosen, axis + 1), axis + 1), axis + 1)
            places, step = here, step * length
    return (values, places) if wanted else values


def _window_table(length: int, size: int) -> np.ndarray[Any, Any]:
    """The positions of each window, one a row; shorter ones repeat their last."""
    outputs = np.arange(size)
    first, last = outputs * length // size, -(-(outputs + 1) * length // size)
    most = int((last - first).max())
    found: np.ndarray[Any, Any] = np.minimum(first[:, None] + np.arange(most), last[:, None] - 1)
    return found


# -- the reverse -------------------------------------------------------------------------------------------------


class MaxUnpool(Function):
    """Zeros, and values (N, P, C) at places (N, P, C) of an axis; of several at one place the last."""

    fresh = True

    def forward(self, x: Tensor, places: Tensor, length: int) -> Tensor:
        self.save(places)
        engine, (n, _, c) = x.engine, x.shape
        out = engine.full((n, length, c), 0, x.dtype)
        if x.numel():
            index = (_along(engine, n, (n, 1, 1)), places, _along(engine, c, (1, 1, c)))
            engine.scatter(out, index, x, False)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        (places,) = self.saved
        return gather(grad, 1, places)


def _along(engine: Engine, count: int, shape: Shape) -> Tensor:
    """0, 1, ... along one axis."""
    return reshape(numbers(engine, count), shape)


@of_images("input", "indices", axes=1)
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """``max_unpool2d`` of sequences (N, L, C), or one (L, C)."""
    return _unpooled("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


@of_images("input", "indices", guesses=True, axes=2)
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """Maxima put back at the places that ``max_pool2d`` returned, zeros elsewhere.

    ``output_size``: rows and columns of the result (or its whole shape), where other sizes than
    (OH - 1) * stride - 2 * padding + kernel_size were pooled to these maxima.
    """
    return _unpooled("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


@of_images("input", "indices", axes=3)
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """``max_unpool2d`` of volumes (N, D, H, W, C), or one (D, H, W, C)."""
    return _unpooled("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)


def _unpooled(
    function: str,
    axes: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    output_size: Any,
) -> Tensor:
    check_images(function, x, axes)
    check_tensor(function, indices)
    x.engine.check_owner(function, indices)
    if not is_integer(indices.dtype) or indices.shape != x.shape:
        raise (ShapeError if is_integer(indices.dtype) else DtypeError)(
            f"[{function}] expected indices of integers shaped as input: {x.shape}, got {indices.shape} of "
            f"{indices.dtype}"
        )
    kernel = per_axis(function, "kernel_size", kernel_size, axes, 1)
    steps = kernel if stride is None else per_axis(function, "stride", stride, axes, 1)
    pads = per_axis(function, "padding", padding, axes, 0)
    plain = tuple((n - 1) * s - 2 * p + k for n, k, s, p in zip(x.shape[1:], kernel, steps, pads, strict=False))
    sizes = plain if output_size is None else _given_size(function, axes, plain, steps, output_size)
    if min(sizes) < 1:
        raise ShapeError(f"[{function}] expected a result of at least one element, got sizes {sizes}: use less padding")
    n, c, length = x.shape[0], x.shape[-1], math.prod(sizes)
    message = f"[{function}] expected indices in 0..{length - 1}, got {{value}}: give the output_size that was pooled"
    places = reshape(indices.detach().astype(int64), (n, -1, c))
    if places.numel():
        places = x.engine.check_range(places, 0, length, RangeCheck(IndexingError, message))
    return reshape(call(MaxUnpool, reshape(x, (n, -1, c)), places, length), (n, *sizes, c))


def _given_size(function: str, axes: int, plain: Shape, steps: Shape, output_size: Any) -> Shape:
    """The lengths asked for, each less than a stride away from the plain one."""
    given = tuple(output_size) if isinstance(output_size, list | tuple) else (output_size,)
    sizes = given[-axes:] if len(given) in (axes, axes + 2) else ()
    whole = [n for n in sizes if isinstance(n, int | np.integer) and not isinstance(n, bool)]
    if len(whole) != axes or any(not m - s < n < m + s for n, m, s in zip(whole, plain, steps, strict=True)):
        raise ArgumentError(
            f"[{function}] expected an output_size of {axes} lengths within a stride {steps} of {plain}, got "
            f"{described(output_size)}"
        )
    return tuple(int(n) for n in whole)
