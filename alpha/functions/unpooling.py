"""The reverse of maximum pooling: maxima put back at their places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.dtypes import int64, is_integer
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError, described
from alpha.functions.images import of_images
from alpha.functions.lookups import gather
from alpha.functions.operands import call, check_tensor, numbers
from alpha.functions.pool_windows import Shape, Size, check_images, per_axis
from alpha.functions.shape import reshape
from alpha.tensor import Tensor

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


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
