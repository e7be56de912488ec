"""ArrayOperations: the CPU engine's general families: element-wise, reductions, sorting, products, indexing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from alpha import caches, host
from alpha.arguments import Shape
from alpha.composed import elementwise
from alpha.cpu import lookups, streaming, tapes, tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.loops import machine, ranges
from alpha.cpu.loops.elements import converts
from alpha.cpu.masks import MaskOperations
from alpha.dtypes import bool_, default_int, info, is_bool, is_complex, is_float
from alpha.engine import Index, Operand, RangeCheck
from alpha.errors import ShapeError
from alpha.expressions.program import conversion
from alpha.launches import COPY_INTO
from alpha.tensor import Tensor, dense_strides

PIECE = 1 << 18
"""About how many elements NumPy works on at a time where it allocates its result itself."""

SUM_BLOCK = 128
"""Rows per block of a blocked sum: rows are added one after another within a block, then the blocks' sums."""

_NOTHING_FOUND = (0, (1 << 63) - 1)
"""Among indices: that one was ignored, and the place of the first out of range."""

_RANGE_JOB = struct.Struct("9q").pack

_REDUCTIONS = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_DECISIONS = {"any": np.logical_or.reduce, "all": np.logical_and.reduce}
_ARG_REDUCTIONS = {"argmax": np.argmax, "argmin": np.argmin}


class ArrayOperations(MaskOperations):
    """Element-wise operations and conversions as loops of ``alpha.cpu.loops``; other families as NumPy's calls."""

    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        return elementwise.elementwise(self, op, operands, out)

    def copy(self, source: Tensor, out: Tensor) -> None:
        if is_complex(out.dtype) if source.dtype == out.dtype else not converts(source.dtype, out.dtype):
            self.act(host.convert, self.operand(source), self.operand(out))
        elif source.dtype != out.dtype:
            self.pointwise("copy", conversion(out.dtype), (repeated(source, out.shape),), (), out)
        elif COPY_INTO.launch(out, source) is None and not self.copy_layout(source, out):
            # Their memory overlaps: pieces could overwrite what is still to be read.
            apart = self.empty_like(source)
            self.copy_layout(source, apart)
            self.copy_layout(apart, out)

    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        kept = [n for axis, n in enumerate(x.shape) if axis not in axes]
        dtype = bool_ if op in _DECISIONS else info(x.dtype).total if op in ("sum", "prod") else x.dtype
        out = self.empty(kept, dtype, _order_without(x, axes))
        self.act(_reduce, op, axes, self.operand(x), self.operand(out))
        return _with_axes(out, axes) if keepdims else out

    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        out = self.empty(x.shape[:axis] + x.shape[axis + 1 :], default_int)
        self.act(_ARG_REDUCTIONS[op], self.operand(x), axis, self.operand(out))
        return out

    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        values, indices = self.empty_like(x), self.empty_like(x, default_int)
        self.act(_sort, axis, self.operand(x), self.operand(values), self.operand(indices))
        return values, indices

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        out = self.empty_like(x, info(x.dtype).total)
        self.act(_accumulate, axis, self.operand(x), self.operand(out))
        return out

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        left, right = self._for_blas(x), self._for_blas(y)
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2]) if left.ndim + right.ndim > 4 else ()
        out = self.empty((*batch, left.shape[-2], right.shape[-1]), x.dtype)
        self.act(np.matmul, left, right, self.operand(out))
        return out

    def _for_blas(self, x: Tensor) -> Array:
        """The tensor as an array whose strides BLAS accepts: a copy where its own strides are not accepted."""
        array = self.operand(x)
        return array if _suits_blas(array) else self.operand(self.dense(x, range(x.ndim)))

    def gather(self, x: Tensor, index: Index) -> Tensor:
        axis = lookups.only_axis(index)
        found = self.take_selected(x, index) if axis is None else self.take_entries(x, index[axis], axis)
        if found is not None:
            return found
        native = self._native(index)
        if axis is None:
            out = self.empty(_shape_of(x.shape, native), x.dtype)
            self.act(_take, self.operand(x), native, self.operand(out))
            return out
        out = self.empty(x.shape[:axis] + index[axis].shape + x.shape[axis + 1 :], x.dtype)
        self.act(_take_along, self.operand(x), native[axis], axis, self.operand(out))
        return out

    def scatter(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> None:
        if self.put_selected(out, index, values, accumulate):
            return
        axis = lookups.only_axis(index)
        if axis is not None and isinstance(values, Tensor):
            if not accumulate and self.put_entries(out, index[axis], axis, values):
                return
            if accumulate and lookups.adds(out, values) and self.add_entries(out, index[axis], axis, values):
                return
        source = self.operand(values) if isinstance(values, Tensor) else values
        self.act(_add if accumulate else _put, self.operand(out), self._native(index), source)

    def check_range(self, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None = None) -> Tensor:
        return self._checked(index, low, high, check, ignore)[0]

    def check_labels(self, labels: Tensor, classes: int, check: RangeCheck, ignore: int) -> tuple[Tensor, bool]:
        return self._checked(labels, 0, classes, check, ignore)

    def _checked(
        self, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None
    ) -> tuple[Tensor, bool]:
        """A copy of the indices, those to ignore replaced, and whether there were any to ignore."""
        count, strides = index.numel(), dense_strides(index.shape)
        if index.strides == strides:
            source, out = index, Tensor(self.allocate(8 * count), 0, index.shape, strides, default_int)
        else:
            out = self.empty(index.shape, default_int)
            self.copy(index, out)
            source = out
        if not count:
            return out, False
        return out, self._range(source, out, low, high, check, ignore)()

    def _finding(self, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None) -> Callable[[], bool]:
        """What checks indices that change at their place, and finds whether there are any to ignore."""
        if not index.numel() or index.strides != dense_strides(index.shape):
            return lambda: ArrayOperations._checked(self, index, low, high, check, ignore)[1]
        return self._range(index, self.empty(index.shape, default_int), low, high, check, ignore)

    def _range(
        self, source: Tensor, out: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None
    ) -> Callable[[], bool]:
        """What checks some indices, copies them, and finds whether there are any to ignore."""
        count, checking = source.numel(), self.checking or high <= 0  # no element can stand in where there is none
        found, plan, may_ignore = np.array(_NOTHING_FOUND), _range_plan(source.numel()), ignore is not None
        is_aligned = out.storage.address % ISA.bytes == 0
        streams = source is not out and streaming.streams(8 * count, 8 * count) and is_aligned
        loop, pieces, findings = _range_loop(streams), -(-count // ranges.TASK), found.ctypes.data

        def find() -> bool:
            found[...] = _NOTHING_FOUND
            tapes.kept(found)
            job = _RANGE_JOB(  # made here, so that what is known by its address is held
                plan.address, source.address, out.address, low, high, ignore if may_ignore else 0, may_ignore, checking,
                findings,
            )  # fmt: skip
            tasks.run(loop, job, pieces, self.threads)
            is_ignored, place = found.tolist()
            if checking and place < count:
                raise check.error(int(HostEngine.array(self, out).reshape(-1)[place]), place)
            return bool(is_ignored)

        return find

    def _native(self, index: Index) -> tuple[Any, ...]:
        """The index as NumPy takes it. A mask is copied: NumPy reads it twice, and it may change in between."""
        entries: list[Any] = []
        for entry in index:
            if isinstance(entry, Tensor):
                entries.append(self.array(entry).copy() if is_bool(entry.dtype) else self.operand(entry))
            else:
                entries.append(entry)
        return tuple(entries)


@caches.kept
def _range_plan(count: int) -> tasks.Record:
    """The check of so many indices."""
    return tasks.Record((-(-count // ranges.TASK), count))


@cache
def _range_loop(streams: bool) -> machine.Loop:
    """The loop that checks indices; see ``alpha.cpu.loops.ranges``."""
    return machine.loop(ranges.ir_of(streams))


def repeated(x: Tensor, shape: Shape) -> Tensor:
    """A view of a tensor repeated to a shape; ShapeError where it does not broadcast to it."""
    missing = len(shape) - x.ndim
    if missing < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[missing:], strict=True)):
        raise ShapeError(f"[copy] expected a source that broadcasts to {shape}, got {x.shape}")
    strides = [0 if n == 1 else stride for n, stride in zip(x.shape, x.strides, strict=True)]
    return x if x.shape == shape else x.strided(x.offset, shape, (*[0] * missing, *strides))


# -- splitting into pieces ---------------------------------------------------------------------------------------


def _pieces(length: int, count: int) -> Iterator[slice]:
    """``count`` slices of nearly equal length that cover ``range(length)``."""
    edges = [length * i // count for i in range(count + 1)]
    return (slice(a, b) for a, b in pairwise(edges) if b > a)


# -- reductions, products, indices -------------------------------------------------------------------------------


def _order_without(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The memory order of a tensor's remaining axes once some are removed."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return tuple(kept.index(axis) for axis in x.memory_order() if axis in kept)


def _with_axes(out: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The result with each reduced axis put back at length 1."""
    shape, strides = list(out.shape), list(out.strides)
    for axis in axes:
        shape.insert(axis, 1)
        strides.insert(axis, 1)
    return out.strided(out.offset, tuple(shape), tuple(strides))


def _accurate_sum(array: Array, axes: tuple[int, ...], out: Array) -> None:
    """Sums whose error does not grow with the number of elements.

    NumPy adds pairwise only along the innermost axis in memory. float32 is added up in float64 instead; float64 is
    first added in blocks, so that no running sum is longer than a block.
    """
    wide = info(array.dtype).accumulator
    if array.dtype != wide:
        np.copyto(out, np.add.reduce(array, axis=axes, dtype=wide), casting="same_kind")
        return
    for axis in reversed(axes):
        array = _blocked_sum(array, axis)
    np.copyto(out, array)


def _blocked_sum(array: Array, axis: int) -> Array:
    while array.shape[axis] > SUM_BLOCK:
        starts = np.arange(0, array.shape[axis], SUM_BLOCK)
        array = np.add.reduceat(array, starts, axis=axis)
    return np.asarray(np.add.reduce(array, axis=axis))


def _reduce(op: str, axes: tuple[int, ...], array: Array, out: Array) -> None:
    """A reduction, whose numbers are added up or multiplied in a wider dtype."""
    if op in _DECISIONS:
        _DECISIONS[op](array, axis=axes, out=out)
    elif op == "sum" and is_float(out.dtype):
        _accurate_sum(array, axes, out)
    elif op == "prod" and out.dtype != info(out.dtype).accumulator:
        wide = info(out.dtype).accumulator
        np.copyto(out, np.multiply.reduce(array, axis=axes, dtype=wide), casting="same_kind")
    else:
        _REDUCTIONS[op].reduce(array, axis=axes, out=out, dtype=out.dtype if op in ("sum", "prod") else None)


def _sort(axis: int, array: Array, values: Array, indices: Array) -> None:
    """A few lines at a time: NumPy allocates the results of these calls itself, outside the pool."""
    for lines, ordered, positions in _lines(axis, array, values, indices):
        order = np.argsort(lines, axis=axis, kind="stable")
        np.copyto(positions, order)
        if lines.ndim == 1:
            np.take(lines, order, out=ordered, mode="wrap")
        else:
            np.copyto(ordered, np.take_along_axis(lines, order, axis))


def _accumulate(axis: int, array: Array, out: Array) -> None:
    """float32 is summed in float64, a few lines at a time: a running sum has no pairwise form."""
    if array.dtype == info(array.dtype).accumulator:
        np.add.accumulate(array, axis=axis, out=out)
        return
    for lines, target in _lines(axis, array, out):
        _running_sums(np.moveaxis(lines, axis, 0), np.moveaxis(target, axis, 0))


def _shape_of(shape: Shape, index: tuple[Any, ...]) -> Shape:
    """The shape of what an index takes; of its own arrays of integers only the shapes count."""
    places = [np.broadcast_to(np.intp(0), entry.shape) if _are_places(entry) else entry for entry in index]
    found: Array = np.empty(shape, np.int8)[index] if 0 in shape else np.broadcast_to(np.int8(0), shape)[tuple(places)]
    shape_found: Shape = found.shape
    return shape_found


def _are_places(entry: Any) -> bool:
    """Whether an index's entry is an array of integers."""
    return isinstance(entry, np.ndarray) and not is_bool(entry.dtype)


def _take(array: Array, index: tuple[Any, ...], out: Array) -> None:
    np.copyto(out, array[index])


def _take_along(array: Array, places: Array, axis: int, out: Array) -> None:
    # "wrap" because "raise" makes NumPy gather into a buffer first; the indices are in range
    np.take(array, places, axis=axis, out=out, mode="wrap")


def _put(array: Array, index: tuple[Any, ...], values: Any) -> None:
    array[index] = values


def _add(array: Array, index: tuple[Any, ...], values: Any) -> None:
    """Where an index comes more than once, all of its values are added."""
    if any(map(_are_places, index)):
        np.add.at(array, index, values)
    else:
        array[index] += values


def _suits_blas(array: Array) -> bool:
    """Whether rows or columns are dense, as BLAS needs it; NumPy multiplies other matrices far more slowly."""
    (rows, columns), (row_stride, column_stride), item = array.shape[-2:], array.strides[-2:], array.itemsize
    by_rows = column_stride == item and row_stride >= columns * item
    by_columns = row_stride == item and column_stride >= rows * item
    return by_rows or by_columns


def _lines(axis: int, *arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Parts of arrays of one shape that hold whole lines along an axis, about ``PIECE`` elements each."""
    shape = arrays[0].shape
    others = [a for a in range(len(shape)) if a != axis]
    if arrays[0].size <= PIECE or not others:
        yield arrays
        return
    longest = max(others, key=lambda a: shape[a])
    count = min(shape[longest], -(-arrays[0].size // PIECE))
    for piece in _pieces(shape[longest], count):
        cut = (slice(None),) * longest + (piece,)
        yield tuple(array[cut] for array in arrays)


def _running_sums(array: Array, out: Array) -> None:
    """``out[i]`` = the sum of ``array[: i + 1]`` along the first axis, in the dtype that sums are added up in."""
    kind = info(out.dtype).accumulator
    step = max(1, PIECE // max(1, array[:1].size))
    carried = None
    for first in range(0, len(array), step):
        piece = array[first : first + step].astype(kind)
        if carried is not None:
            piece[0] = carried + piece[0]
        np.add.accumulate(piece, axis=0, out=piece)
        carried = piece[-1].copy()
        np.copyto(out[first : first + step], piece, casting="same_kind")
