"""Pooling, a tap of the window after the other, and weighted sums over an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.composed.arrays import cast, filled
from alpha.composed.windows import windows
from alpha.dtypes import float64, int32
from alpha.errors import ShapeError
from alpha.records import IMAGE_ORDER, WeightedPairs

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.geometry import Geometry
    from alpha.tensor import Tensor


def max_pool2d(engine: Engine, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
    """-inf and tap -1 where a window holds nothing."""
    check_size("max_pool2d", x, geometry.input)
    do, size = engine.elementwise, (x.shape[0], *geometry.output, x.shape[3])
    y, taps = filled(engine, size, -math.inf, x.dtype, IMAGE_ORDER), filled(engine, size, -1, int32, IMAGE_ORDER)
    for (row, column), values, (best, chosen) in windows(geometry, x, y, taps):
        # The first element enters even where it is -inf, and NaN always; then only another NaN passes it.
        better = do("logical_or", do("gt", values, best), do("ne", values, values))
        better = do("logical_or", better, do("lt", chosen, 0))
        do("where", better, values, best, out=best)
        do("where", better, row * geometry.columns.filter + column, chosen, out=chosen)
    return y, taps if need_taps else None


def max_pool2d_grad(engine: Engine, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
    """Each gradient goes to the tap that was chosen."""
    check_size("max_pool2d_grad", dy, geometry.output)
    if taps.shape != dy.shape:
        raise ShapeError(f"[max_pool2d_grad] expected taps of shape {dy.shape}, got {taps.shape}")
    do = engine.elementwise
    dx = filled(engine, (dy.shape[0], *geometry.input, dy.shape[3]), 0, dy.dtype, IMAGE_ORDER)
    for (row, column), sums, (gradient, chosen) in windows(geometry, dx, dy, taps):
        here = do("eq", chosen, row * geometry.columns.filter + column)
        do("add", sums, do("where", here, gradient, 0), out=sums)
    return dx


def avg_pool2d(engine: Engine, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
    """Sums in float64, divided by the size of each window."""
    check_size("avg_pool2d", x, geometry.input)
    y = filled(engine, (x.shape[0], *geometry.output, x.shape[3]), 0, float64, IMAGE_ORDER)
    for _, values, (sums,) in windows(geometry, cast(engine, x, float64), y):
        engine.elementwise("add", sums, values, out=sums)
    return cast(engine, engine.elementwise("div", y, _sizes(engine, geometry, count_padding)), x.dtype)


def avg_pool2d_grad(engine: Engine, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
    """Each window's share goes to all that it holds."""
    check_size("avg_pool2d_grad", dy, geometry.output)
    shares = engine.elementwise("div", cast(engine, dy, float64), _sizes(engine, geometry, count_padding))
    dx = filled(engine, (dy.shape[0], *geometry.input, dy.shape[3]), 0, float64, IMAGE_ORDER)
    for _, sums, (share,) in windows(geometry, dx, shares):
        engine.elementwise("add", sums, share, out=sums)
    return cast(engine, dx, dy.dtype)


def combine(engine: Engine, x: Tensor, pairs: WeightedPairs) -> Tensor:
    """What the pairs name is gathered, weighted, and added to the positions that own them."""
    count, length, values = x.shape
    positions = len(pairs.starts) - 1
    if len(pairs.sources) and not 0 <= pairs.sources.min() <= pairs.sources.max() < length:
        raise ShapeError(f"[combine] expected pairs within an axis of {length}, got {pairs.sources.max()}")
    owners = np.repeat(np.arange(positions), np.diff(pairs.starts))
    every = slice(None)
    parts = engine.gather(x, (every, engine.from_numpy(pairs.sources), every))
    weights = engine.from_numpy(pairs.weights.astype(x.dtype)[None, :, None])
    out = filled(engine, (count, positions, values), 0, x.dtype)
    weighted = engine.elementwise("mul", parts, weights)
    engine.scatter(out, (every, engine.from_numpy(owners), every), weighted, accumulate=True)
    return out


def resample(engine: Engine, x: Tensor, rows: WeightedPairs, columns: WeightedPairs) -> Tensor:
    """Rows, then columns: blocks of copies, or what is gathered where pixels are only chosen, else weighted sums."""
    n, h, w, c = x.shape
    down, across = rows.repeats(h), columns.repeats(w)
    if down and across:
        return _repeated(engine, x, down, across)
    if rows.chooses and columns.chooses:
        every, places = slice(None), [engine.constant(("resample", p), partial(_sources, p)) for p in (rows, columns)]
        y = engine.gather(permuted(x, IMAGE_ORDER), (places[0], every, every, every))
        return permuted(engine.gather(y, (every, places[1], every, every)), (2, 0, 1, 3))
    x = engine.dense(x, IMAGE_ORDER)
    y = engine.combine(x.strided(x.offset, (1, h, w * n * c), (0, w * n * c, 1)), rows)
    height = y.shape[1]
    y = engine.combine(y.strided(y.offset, (height, w, n * c), (w * n * c, n * c, 1)), columns)
    width = y.shape[1]
    return y.strided(y.offset, (n, height, width, c), (c, width * n * c, n * c, 1))


def _sources(pairs: WeightedPairs) -> np.ndarray[Any, Any]:
    return pairs.sources


def _repeated(engine: Engine, x: Tensor, rows: int, columns: int) -> Tensor:
    """Each pixel as a block of equal pixels."""
    n, h, w, c = x.shape
    y = engine.empty((n, h * rows, w * columns, c), x.dtype, x.memory_order())
    image, down, across, channel = x.strides
    pixels = x.strided(x.offset, (n, h, 1, w, 1, c), (image, down, 0, across, 0, channel))
    image, down, across, channel = y.strides
    blocks = (image, down * rows, down, across * columns, across, channel)
    engine.copy(pixels, y.strided(y.offset, (n, h, rows, w, columns, c), blocks))
    return y


def permuted(x: Tensor, order: Sequence[int]) -> Tensor:
    """A view with the axes in another order."""
    return x.strided(x.offset, tuple([x.shape[a] for a in order]), tuple([x.strides[a] for a in order]))


def check_size(function: str, x: Tensor, size: tuple[int, int]) -> None:
    """ShapeError unless the images are of the size that the geometry was made for."""
    if x.ndim != 4 or x.shape[1:3] != size:
        raise ShapeError(f"[{function}] expected a tensor (N, {size[0]}, {size[1]}, C), got {x.shape}")


def _sizes(engine: Engine, geometry: Geometry, count_padding: bool) -> Tensor:
    """(1, OH, OW, 1): the elements of each window, or of its part inside the input; at least 1."""
    rows, columns = (axis.pairs_by_output.count for axis in (geometry.rows, geometry.columns))
    inside = np.maximum(np.multiply.outer(rows, columns), 1).astype(float64)
    sizes = np.full(geometry.output, math.prod(geometry.filter), float64) if count_padding else inside
    return engine.from_numpy(sizes[None, :, :, None])
