"""Filling, casting, running sums, checked indices, and products with vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.arguments import Shape
from alpha.dtypes import default_int, info

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.records import RangeCheck, Scalar
    from alpha.tensor import Tensor

PIECE = 1 << 17
"""Numbers of a progression that the host makes at a time."""


def fill(engine: Engine, out: Tensor, value: Scalar) -> None:
    """``out[...] = value``."""
    with np.errstate(all="ignore"):
        number = np.asarray(value).astype(out.dtype)
    engine.copy(engine.from_numpy(number), out)


def filled(
    engine: Engine, shape: Sequence[int], value: Scalar, dtype: np.dtype[Any], order: Sequence[int] | None = None
) -> Tensor:
    """A dense tensor that holds one number everywhere."""
    out = engine.empty(shape, dtype, order)
    engine.fill(out, value)
    return out


def progression(engine: Engine, first: int | float, step: int | float, count: int, dtype: np.dtype[Any]) -> Tensor:
    """Made on the host, ``PIECE`` numbers at a time."""
    return engine.from_pieces((count,), dtype, _progression(first, step, count))


def _progression(first: int | float, step: int | float, count: int) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """The pieces, and the place of each one's first number."""
    for start in range(0, count, PIECE):
        index = np.arange(start, min(start + PIECE, count), dtype=np.int64)
        if isinstance(first, int):
            yield start, index * int(step) + first
        else:
            with np.errstate(all="ignore"):
                second = np.float64(first) + step
                values = index * (second - first) + first
            if start == 0:
                values[1:2] = second
            yield start, values


def copied(engine: Engine, x: Tensor, dtype: np.dtype[Any], order: Sequence[int] | None = None) -> Tensor:
    """A dense copy in another dtype, and in the given order of axes or in that in which it lies."""
    out = engine.empty(x.shape, dtype, x.memory_order() if order is None else order)
    engine.copy(x, out)
    return out


def concat(engine: Engine, tensors: Sequence[Tensor], axis: int, order: Sequence[int] | None = None) -> Tensor:
    """Each tensor is copied into its part of the result."""
    first, length = tensors[0], sum([x.shape[axis] for x in tensors])
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    out = engine.empty(shape, first.dtype, order or max(tensors, key=lambda x: x.numel()).memory_order())
    start = 0
    for x in tensors:
        engine.copy(x, out.strided(out.offset + start * out.strides[axis] if x.numel() else 0, x.shape, out.strides))
        start += x.shape[axis]
    return out


def stack(engine: Engine, tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Views with one more axis, one after another along it."""
    wide = [x.strided(x.offset, inserted(x.shape, axis), inserted(x.strides, axis)) for x in tensors]
    return engine.concat(wide, axis)


def inserted(lengths: Shape, axis: int) -> Shape:
    """A shape, or strides, with a new axis of length 1 before an axis."""
    return (*lengths[:axis], 1, *lengths[axis:])


def flip(engine: Engine, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A copy of a view that steps backwards: users hold none of these, so that kernels need not think of them."""
    out = engine.empty_like(x)
    if x.numel():
        offset = x.offset + sum((x.shape[a] - 1) * x.strides[a] for a in axes)
        strides = tuple(-s if a in axes else s for a, s in enumerate(x.strides))
        engine.copy(x.strided(offset, x.shape, strides), out)
    return out


def cast(engine: Engine, x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """The tensor in another dtype: itself where that is its own."""
    return x if x.dtype == dtype else copied(engine, x, dtype)


def check_range(
    engine: Engine, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None = None
) -> Tensor:
    """The indices are checked on the host."""
    values = np.array(engine.to_numpy(index))
    ignored = np.zeros(values.shape, bool) if ignore is None else values == ignore
    wrong = ~ignored & ((values < low) | (values >= high))
    if wrong.any() and (engine.checking or high <= 0):  # where there is no element, none can stand in
        position = int(np.argmax(wrong))
        raise check.error(int(values.reshape(-1)[position]), position)
    values[values < 0] += high
    values[ignored | wrong] = 0
    return engine.from_numpy(values)


def check_none(engine: Engine, count: Tensor, check: RangeCheck) -> None:
    """The host waits for the count."""
    found = count.item()
    if found > 0:
        raise check.error(found, 0)


def check_none_later(engine: Engine, count: Tensor, check: RangeCheck) -> None:
    """As an index that has to be 0."""
    index = cast(engine, count.strided(count.offset, (1,), (1,)), default_int)
    engine.check_range(index, 0, 1, check)


def index_select(
    engine: Engine, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None, from_end: bool = True
) -> Tensor:
    """The index between whole axes."""
    if check is not None and index.numel():
        index = engine.check_range(index, -x.shape[axis] if from_end else 0, x.shape[axis], check)
    return engine.gather(x, tuple([index if a == axis else slice(None) for a in range(x.ndim)]))


def gather_along(engine: Engine, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None) -> Tensor:
    """The positions along the other axes are indices too."""
    if check is not None and index.numel():
        index = engine.check_range(index, -x.shape[axis], x.shape[axis], check)
    return engine.gather(x, _positions(engine, index, axis))


def gather_along_kept(engine: Engine, x: Tensor, index: Tensor, axis: int, check: RangeCheck) -> tuple[Tensor, Tensor]:
    """The index is checked first."""
    if index.numel():
        index = engine.check_range(index, -x.shape[axis], x.shape[axis], check)
    return engine.gather_along(x, index, axis), index


def gather_along_grad(
    engine: Engine, dy: Tensor, index: Tensor, axis: int, shape: Sequence[int], order: Sequence[int]
) -> Tensor:
    """Zeros, and then the sums."""
    out = engine.full(shape, 0, dy.dtype, order)
    engine.scatter_along(out, index, dy, axis)
    return out


def scatter_along(engine: Engine, out: Tensor, index: Tensor, values: Tensor, axis: int) -> None:
    """The positions along the other axes are indices too."""
    engine.scatter(out, _positions(engine, index, axis), values, accumulate=True)


def put_along(engine: Engine, out: Tensor, index: Tensor, values: Tensor, axis: int, op: str = "put") -> None:
    """The positions along the other axes are indices too; products and extremes are made on the host."""
    places = _positions(engine, index, axis)
    if op in ("put", "add"):
        engine.scatter(out, places, values, accumulate=op == "add")
        return
    numbers = np.array(engine.to_numpy(out))
    with np.errstate(all="ignore"):
        getattr(np, op).at(numbers, tuple([engine.to_numpy(part) for part in places]), engine.to_numpy(values))
    engine.copy(engine.from_numpy(numbers), out)


def _positions(engine: Engine, index: Tensor, axis: int) -> tuple[Tensor, ...]:
    """An index for every axis: the given one for ``axis``, 0, 1, ... for the others."""
    found = grid(engine, index.shape)
    found[axis] = index
    return tuple(found)


def grid(engine: Engine, shape: Sequence[int]) -> list[Tensor]:
    """For each axis its positions 0, 1, ..., shaped so that together they broadcast to the shape."""
    ndim = len(shape)
    return [
        line.strided(0, tuple(n if a == axis else 1 for a in range(ndim)), (1,) * ndim)
        for axis, (line, n) in enumerate(zip([numbers(engine, n) for n in shape], shape, strict=True))
    ]


def numbers(engine: Engine, count: int) -> Tensor:
    """0, 1, ..., count - 1 as int64, to be read only."""
    return engine.constant(("numbers", count), lambda: np.arange(count, dtype=np.int64))


def one_hot(engine: Engine, labels: Tensor, classes: int, dtype: np.dtype[Any], check: RangeCheck) -> Tensor:
    """Zeros, and then the ones."""
    (rows,) = labels.shape
    out = engine.full((rows, classes), 0, dtype)
    if rows:
        followed = engine.check_range(labels, 0, classes, check)
        engine.scatter(out, (numbers(engine, rows), followed), 1, accumulate=False)
    return out


def cumsum(engine: Engine, x: Tensor, axis: int) -> Tensor:
    """The sums are made on the host, those of floats in float64: a running sum has no pairwise form."""
    with np.errstate(all="ignore"):
        sums = np.cumsum(engine.to_numpy(x), axis, info(x.dtype).accumulator)
    return copied(engine, engine.from_numpy(sums), info(x.dtype).total, x.memory_order())


def cumprod(engine: Engine, x: Tensor, axis: int) -> Tensor:
    """The products are made on the host, those of floats in float64."""
    with np.errstate(all="ignore"):
        products = np.cumprod(engine.to_numpy(x), axis, info(x.dtype).accumulator)
        return engine.from_numpy(products.astype(info(x.dtype).total, copy=False))


def running_extremes(engine: Engine, x: Tensor, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The running extremes are found on the host; an element that equals its own, or is NaN, is the last one."""
    given = engine.to_numpy(x)
    values = (np.maximum if largest else np.minimum).accumulate(given, axis)
    places = np.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    indices = np.maximum.accumulate(np.where((given == values) | np.isnan(given), places, 0), axis)
    return engine.from_numpy(values), engine.from_numpy(indices)


def gemv(engine: Engine, a: Tensor, x: Tensor, trans: bool = False, plus: Tensor | None = None) -> Tensor:
    """The vector is a matrix of one column."""
    column = x.strided(x.offset, (*x.shape, 1), (*x.strides, 1))
    y = engine.matmul(transposed(a) if trans else a, column)
    y = y.strided(y.offset, y.shape[:1], y.strides[:1])
    return y if plus is None else engine.elementwise("add", y, plus)


def ger(
    engine: Engine, x: Tensor, y: Tensor, alpha: float = 1.0, a: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """A column times a row, broadcast."""
    column = x.strided(x.offset, (*x.shape, 1), (*x.strides, 1))
    scaled = engine.elementwise("mul", column, alpha)
    if a is None:
        return engine.elementwise("mul", scaled, y, out=out)
    return engine.elementwise("add", a, engine.elementwise("mul", scaled, y), out=out)


def transposed(x: Tensor) -> Tensor:
    """A view with the last two axes exchanged."""
    shape, strides = x.shape, x.strides
    return x.strided(x.offset, (*shape[:-2], *shape[:-3:-1]), (*strides[:-2], *strides[:-3:-1]))
