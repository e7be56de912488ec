"""ArrayOperations: the CPU engine's general families: element-wise, reductions, sorting, products, indexing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from alpha.cpu import lookups, numpy_threads
from alpha.cpu.base import Array
from alpha.cpu.kernels import indexing as kernels
from alpha.cpu.masks import MaskOperations
from alpha.dtypes import bool_, default_int, info, is_bool, is_float
from alpha.engine import Index, Operand, RangeCheck
from alpha.errors import ArgumentError
from alpha.expressions.operations import kind_of, program_of
from alpha.launches import COPY_INTO
from alpha.tensor import Tensor, dense_strides

PARALLEL_SIZE = 1 << 18
"""Elements from which an element-wise operation is split between threads: below, waking them costs more."""

PIECE = 1 << 18
"""About how many elements NumPy works on at a time where it allocates its result itself."""

SUM_BLOCK = 128
"""Rows per block of a blocked sum: rows are added one after another within a block, then the blocks' sums."""

Loop = Callable[..., Any]
"""``loop(*inputs, out=array)``, as a ufunc is called."""

_ANSWERS: dict[str, Loop] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "isfinite": np.isfinite,
}
_ARITHMETIC: dict[str, Loop] = {
    "neg": np.negative,
    "abs": np.absolute,
    "sign": np.sign,
    "square": np.square,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_REDUCTIONS = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_DECISIONS = {"any": np.logical_or.reduce, "all": np.logical_and.reduce}


class ArrayOperations(MaskOperations):
    """Element-wise operations as loops of ``alpha.cpu.loops``, of integers as NumPy's; other families as NumPy's calls.

    NumPy's large calls are split between threads.
    """

    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        kinds = tuple([kind_of(value) for value in operands])
        tensors = [t for t in operands if isinstance(t, Tensor)]
        dtype = tensors[-1].dtype
        if is_float(dtype) or (op in _LOGIC and is_bool(dtype)):
            numbers = [float(value) for value in operands if not isinstance(value, Tensor)]
            return self.pointwise(op, program_of(op, kinds), tensors, numbers, out)[0]
        loop = _LOOPS.get(op)
        if loop is None:
            raise ArgumentError(f"[elementwise] expected one of {', '.join(sorted(_LOOPS))}, got {op!r}")
        inputs = [
            self.array(value) if isinstance(value, Tensor) else value if op in _ANSWERS else _scalar(value, dtype)
            for value in operands
        ]
        if out is None:
            out = self._result(tensors, bool_ if op in _ANSWERS else dtype)
            target = self.array(out)
        else:
            target = self.array(out)
            inputs = [_copy_if_overlapping(value, target) for value in inputs]
        self._run(loop, inputs, target, out)
        return out

    def copy(self, source: Tensor, out: Tensor) -> None:
        if COPY_INTO.launch(out, source) is not None:
            return
        if source.dtype == out.dtype and self.copy_layout(source, out):
            return
        value, target = self.array(source), self.array(out)
        apart = source.storage is not out.storage or not np.may_share_memory(value, target)
        if apart and target.size >= PARALLEL_SIZE:
            self._run(_copy, [value], target, out)
        else:  # of overlapping memory, pieces could overwrite what is still to be read
            _quietly(_copy, [value], target)

    def _result(self, tensors: Sequence[Tensor], dtype: np.dtype[Any]) -> Tensor:
        """An empty tensor of the operands' broadcast shape, in the memory order of the largest."""
        largest = tensors[0] if len(tensors) == 1 else max(tensors, key=Tensor.numel)
        if len(tensors) == 1 or all(t.shape == largest.shape for t in tensors):
            return self.empty_like(largest, dtype)
        shape = np.broadcast_shapes(*(t.shape for t in tensors))
        missing = len(shape) - largest.ndim
        strides = (0,) * missing + tuple(
            0 if n == 1 else s for n, s in zip(largest.shape, largest.strides, strict=True)
        )
        return self.empty(shape, dtype, largest.view(0, shape, strides).memory_order())

    def _run(self, loop: Loop, inputs: Sequence[Any], out: Array, tensor: Tensor) -> None:
        """Calls the loop; for a large result on pieces along the outermost long axis in memory, a thread per piece."""
        if out.size < PARALLEL_SIZE or self.threads == 1:
            _quietly(loop, inputs, out)
            return
        order = tensor.memory_order()
        axis = next((a for a in order if out.shape[a] >= 4 * self.threads), max(order, key=lambda a: out.shape[a]))
        calls = []
        for piece in _pieces(out.shape[axis], self.threads):
            cut = (slice(None),) * axis + (piece,)
            calls.append((loop, [_cut(value, out, axis, piece) for value in inputs], out[cut]))
        numpy_threads.share(_quietly, calls)

    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        array = self.array(x)
        kept = [n for axis, n in enumerate(x.shape) if axis not in axes]
        if op in _DECISIONS:
            answers = self.empty(kept, bool_, _order_without(x, axes))
            _DECISIONS[op](array, axis=axes, out=self.array(answers))
            return _with_axes(answers, axes) if keepdims else answers
        dtype = x.dtype
        if op in ("sum", "prod"):
            dtype = info(dtype).total
        out = self.empty(kept, dtype, _order_without(x, axes))
        target = self.array(out)
        with np.errstate(all="ignore"):
            if op == "sum" and is_float(dtype):
                _accurate_sum(array, axes, target)
            elif op == "prod" and dtype != info(dtype).accumulator:
                wide = info(dtype).accumulator
                np.copyto(target, np.multiply.reduce(array, axis=axes, dtype=wide), casting="same_kind")
            else:
                _REDUCTIONS[op].reduce(array, axis=axes, out=target, dtype=dtype if op in ("sum", "prod") else None)
        return _with_axes(out, axes) if keepdims else out

    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        function = {"argmax": np.argmax, "argmin": np.argmin}[op]
        out = self.empty(x.shape[:axis] + x.shape[axis + 1 :], default_int)
        function(self.array(x), axis=axis, out=self.array(out))
        return out

    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        values, indices = self.empty_like(x), self.empty_like(x, default_int)
        # A few lines at a time: NumPy allocates the results of these calls itself, outside the pool.
        for array, ordered, positions in _lines(axis, self.array(x), self.array(values), self.array(indices)):
            order = np.argsort(array, axis=axis, kind="stable")
            np.copyto(positions, order)
            if array.ndim == 1:
                np.take(array, order, out=ordered, mode="wrap")
            else:
                np.copyto(ordered, np.take_along_axis(array, order, axis))
        return values, indices

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        out = self.empty_like(x, info(x.dtype).total)
        with np.errstate(all="ignore"):
            if x.dtype == info(x.dtype).accumulator:
                np.add.accumulate(self.array(x), axis=axis, out=self.array(out))
                return out
            # float32 is summed in float64, a few lines at a time: a running sum has no pairwise form.
            for array, target in _lines(axis, self.array(x), self.array(out)):
                _running_sums(np.moveaxis(array, axis, 0), np.moveaxis(target, axis, 0))
        return out

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        left, right = self._for_blas(x), self._for_blas(y)
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2]) if left.ndim + right.ndim > 4 else ()
        out = self.empty((*batch, left.shape[-2], right.shape[-1]), x.dtype)
        with np.errstate(all="ignore"):
            np.matmul(left, right, out=self.array(out))
        return out

    def _for_blas(self, x: Tensor) -> Array:
        """The tensor as an array whose strides BLAS accepts: a copy where its own strides are not accepted."""
        array = self.array(x)
        return array if _suits_blas(array) else self.array(self.dense(x, range(x.ndim)))

    def gather(self, x: Tensor, index: Index) -> Tensor:
        axis = lookups.only_axis(index)
        found = self.take_selected(x, index) if axis is None else self.take_entries(x, index[axis], axis)
        if found is not None:
            return found
        native = self._native(index)
        if axis is None:
            values = np.asarray(self.array(x)[native])
            out = self.empty(values.shape, x.dtype)
            np.copyto(self.array(out), values)
            return out
        out = self.empty(x.shape[:axis] + index[axis].shape + x.shape[axis + 1 :], x.dtype)
        # "wrap" because "raise" makes NumPy gather into a buffer first; the indices are in range
        np.take(self.array(x), native[axis], axis=axis, out=self.array(out), mode="wrap")
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
        target, native = self.array(out), self._native(index)
        source = self.array(values) if isinstance(values, Tensor) else values
        if not accumulate:
            target[native] = source
            return
        with np.errstate(all="ignore"):
            if any(isinstance(entry, np.ndarray) and entry.dtype != bool for entry in native):
                np.add.at(target, native, source)
            else:
                target[native] += source

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
        checking = self.checking or high <= 0  # no element can stand in where there is none
        may_ignore = ignore is not None
        result = kernels.check_range(
            source.address, out.address, count, low, high, ignore if may_ignore else 0, may_ignore, checking
        )
        if result >= 0:  # the position of an index out of range
            raise check.error(self.array(out).reshape(-1)[result], result)
        return out, result == kernels.SOME_IGNORED

    def _native(self, index: Index) -> tuple[Any, ...]:
        """The index as NumPy takes it. A mask is copied: NumPy reads it twice, and it may change in between."""
        entries = []
        for entry in index:
            if isinstance(entry, Tensor):
                array = self.array(entry)
                entries.append(array.copy() if is_bool(entry.dtype) else array)
            else:
                entries.append(entry)
        return tuple(entries)


# -- element-wise loops ------------------------------------------------------------------------------------------


def _quietly(loop: Loop, inputs: Sequence[Any], out: Array) -> None:
    with np.errstate(all="ignore"):  # infinities and NaN are values here; the error state is per thread
        loop(*inputs, out=out)


def _copy(x: Any, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


def _where(condition: Any, x: Any, y: Any, out: Array) -> None:
    if np.may_share_memory(condition, out):
        condition = np.array(condition)
    if np.may_share_memory(x, out):
        np.copyto(out, y, where=np.logical_not(condition))
    else:
        np.copyto(out, y)
        np.copyto(out, x, where=condition)


_LOOPS: dict[str, Loop] = {**_ANSWERS, **_ARITHMETIC, "where": _where}

_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")


def _copy_if_overlapping(value: Any, out: Array) -> Any:
    """An operand that is exactly the result's memory or shares none of it: one that partly overlaps is copied."""
    if not isinstance(value, np.ndarray) or not np.may_share_memory(value, out):
        return value
    same = value.ctypes.data == out.ctypes.data and value.strides == out.strides and value.shape == out.shape
    return value if same else value.copy()


def _scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as an operand for integers of a dtype: it wraps around as their arithmetic does."""
    return np.asarray(value).astype(dtype)


# -- splitting between threads -----------------------------------------------------------------------------------


def _pieces(length: int, count: int) -> Iterator[slice]:
    """``count`` slices of nearly equal length that cover ``range(length)``."""
    edges = [length * i // count for i in range(count + 1)]
    return (slice(a, b) for a, b in pairwise(edges) if b > a)


def _cut(value: Any, out: Array, axis: int, piece: slice) -> Any:
    """The part of an operand that is broadcast to a piece of the result along one of the result's axes."""
    if not isinstance(value, np.ndarray):
        return value
    value_axis = axis - (out.ndim - value.ndim)
    if value_axis < 0 or value.shape[value_axis] == 1:
        return value
    return value[(slice(None),) * value_axis + (piece,)]


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
    return out.view(out.offset, tuple(shape), tuple(strides))


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
