"""The three operators of C-K-S: a product of matrices for each filter tap, over the positions that it meets.

What lies in the padding is met by no tap, so no zero is multiplied here either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from alpha.composed.arrays import filled, transposed
from alpha.composed.windows import windows
from alpha.records import IMAGE_ORDER

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.geometry import Geometry
    from alpha.tensor import Tensor


def conv2d(
    engine: Engine,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    groups: int,
    residual: Tensor | None = None,
    slope: float | None = None,
    accumulate: Tensor | None = None,
) -> Tensor:
    """Y += X W^T, a tap after the other."""
    add = engine.elementwise
    y = filled(engine, (x.shape[0], *geometry.output, w.shape[0]), 0, x.dtype, IMAGE_ORDER)
    for inputs, outputs, filters in _taps(x, y, w, geometry, groups):
        add("add", outputs, engine.matmul(inputs, transposed(filters)), out=outputs)
    for term in (bias, residual):
        y = y if term is None else add("add", y, term, out=y)
    y = y if slope is None else engine.leaky_relu(y, slope)
    return y if accumulate is None else add("add", accumulate, y, out=accumulate)


def conv2d_input_grad(
    engine: Engine,
    dy: Tensor,
    w: Tensor,
    geometry: Geometry,
    groups: int,
    bias: Tensor | None = None,
    accumulate: Tensor | None = None,
) -> Tensor:
    """dX += dY W, a tap after the other."""
    add = engine.elementwise
    dx = filled(engine, (dy.shape[0], *geometry.input, w.shape[3] * groups), 0, dy.dtype, IMAGE_ORDER)
    for inputs, outputs, filters in _taps(dx, dy, w, geometry, groups):
        add("add", inputs, engine.matmul(outputs, filters), out=inputs)
    dx = dx if bias is None else add("add", dx, bias, out=dx)
    return dx if accumulate is None else add("add", accumulate, dx, out=accumulate)


def conv2d_weight_grad(engine: Engine, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
    """dW = dY^T X for each tap."""
    dw = filled(engine, (dy.shape[3], *geometry.filter, x.shape[3] // groups), 0, x.dtype)
    for inputs, outputs, filters in _taps(x, dy, dw, geometry, groups):
        product = engine.matmul(transposed(_matrix(engine, outputs)), _matrix(engine, inputs))
        engine.copy(product, filters)
    return dw


def _matrix(engine: Engine, x: Tensor) -> Tensor:
    """A tensor as (positions, channels)."""
    dense, channels = engine.dense(x, range(x.ndim)), x.shape[-1]
    return dense.strided(dense.offset, (x.numel() // max(channels, 1), channels), (channels, 1))


def _taps(x: Tensor, y: Tensor, w: Tensor, geometry: Geometry, groups: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For each tap and group the views that meet: of x (N, H, W, IC), of y (N, H, W, OC), of the filters (OC, IC)."""
    rows, (_, down, across, _) = w.shape[0] // groups, w.strides
    for (row, column), inputs, (outputs,) in windows(geometry, x, y):
        for group in range(groups):
            place = w.offset + group * rows * w.strides[0] + row * down + column * across
            filters = w.strided(place, (rows, w.shape[3]), (w.strides[0], w.strides[3]))
            yield _channels(inputs, group, w.shape[3]), _channels(outputs, group, rows), filters


def _channels(x: Tensor, group: int, count: int) -> Tensor:
    """A view of the channels of one group."""
    return x.strided(x.offset + group * count * x.strides[3], (*x.shape[:3], count), x.strides)
