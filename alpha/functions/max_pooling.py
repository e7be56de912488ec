"""Maximum pooling of sequences, images and volumes: over windows, and over windows that adapt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from alpha.arguments import flag
from alpha.autograd import Function
from alpha.functions.images import of_images
from alpha.functions.lookups import gather, index_select
from alpha.functions.mean_pooling import adapted_sizes
from alpha.functions.nothing import nothing
from alpha.functions.operands import call
from alpha.functions.pool_windows import (
    ALONE,
    Size,
    Spec,
    by_planes,
    check_images,
    depths_of,
    planes_of,
    volumes_of,
    windows,
)
from alpha.functions.shape import reshape, squeeze, unsqueeze
from alpha.geometry import Axis, Geometry
from alpha.launches import MAX_POOL2D, MAX_POOL2D_FUNCTION
from alpha.tensor import Tensor

__all__ = [
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
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
    return _maxima("max_pool2d", 2, input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices)


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
    return _maxima("max_pool1d", 1, input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices)


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
    return _maxima("max_pool3d", 3, input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices)


def _maxima(function: str, axes: int, x: Tensor, window: tuple[Any, ...], return_indices: bool) -> Any:
    """Maxima over windows, given as ``windows`` takes them, and their places where asked for."""
    check_images(function, x, axes)
    found, _ = windows(function, x, *window)
    if not flag(function, "return_indices", return_indices):
        return by_planes(x, found, ALONE, lambda part, rows, cols: call(MaxPool2d, part, Geometry(rows, cols)))
    return _places_by_planes(x, found, ALONE, lambda part, rows, cols: _with_places(part, Geometry(rows, cols)))


def _places_by_planes(
    x: Tensor, specs: Sequence[Spec], alone: Spec, pool: Callable[[Tensor, Spec, Spec], Pair]
) -> tuple[Tensor, ...]:
    """What ``by_planes`` does for a function of images that returns their maxima and places."""
    if len(specs) == 1:
        return tuple(squeeze(part, 1) for part in pool(unsqueeze(x, 1), alone, specs[0]))
    if len(specs) == 2:
        return pool(x, specs[0], specs[1])
    planes, inside = pool(planes_of(x), specs[1], specs[2])
    values, depths = pool(depths_of(planes, x.shape), specs[0], alone)
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
    wanted = flag(function, "return_indices", return_indices)
    sizes = adapted_sizes(function, axes, x, output_size)
    if 0 in (x.shape[0], x.shape[-1], *sizes):
        values = nothing((x.shape[0], *sizes, x.shape[-1]), x)
        return (values, values.detach().long()) if wanted else values
    return _places_by_planes(x, sizes, 1, _adapted_places) if wanted else by_planes(x, sizes, 1, _adapted_image)


def _adapted_image(x: Tensor, rows: int, columns: int) -> Tensor:
    laid, geometry = _laid(x, rows, columns)
    return call(MaxPool2d, laid, geometry)


def _adapted_places(x: Tensor, rows: int, columns: int) -> Pair:
    laid, geometry = _laid(x, rows, columns)
    values, places = _with_places(laid, geometry)
    if laid is x:
        return values, places
    (height, width), key = x.shape[1:3], ("adaptive places", *x.shape[1:3], rows, columns)

    def table() -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = np.add.outer(_laid_places(height, rows) * width, _laid_places(width, columns))
        return found.reshape(-1)

    origins = x.engine.constant(key, table)
    return values, reshape(index_select(origins, 0, reshape(places, (-1,))), places.shape)


def _laid(x: Tensor, rows: int, columns: int) -> tuple[Tensor, Geometry]:
    """Images in which the windows have one size and lie side by side; shorter ones repeat their last elements."""
    axes = []
    for axis, size in ((1, rows), (2, columns)):
        length = x.shape[axis]
        if length % size:
            key = ("adaptive windows", length, size)
            x = index_select(x, axis, x.engine.constant(key, partial(_laid_places, length, size)))
        width = x.shape[axis] // size
        axes.append(Axis(x.shape[axis], width, width))
    return x, Geometry(*axes)


def _laid_places(length: int, size: int) -> np.ndarray[Any, Any]:
    """The positions that windows hold, one after another, each as many as the longest one."""
    outputs = np.arange(size)
    first, last = outputs * length // size, -(-(outputs + 1) * length // size)
    most = int((last - first).max())
    found: np.ndarray[Any, Any] = np.minimum(first[:, None] + np.arange(most), last[:, None] - 1)
    return found.reshape(-1)
