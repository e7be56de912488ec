"""ArrayOperations: the CUDA engine's copies, fills and element-wise operations over broadcast strided operands."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.cu32.base import DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.cu32.strided import Layout, Shape, Tiles, broadcast_strides, is_dense, plan, tiles
from alpha.dtypes import ALL, bool_, is_bool, is_float, limits, scalar, widest_float
from alpha.engine import Operand, Scalar
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions.operations import NAMES, kind_of, program_of
from alpha.expressions.program import conversion
from alpha.tensor import Tensor, dense_strides

VECTOR_BYTES = 16
THREADS = 256
TILE = 32
"""Side of a transposition's tiles: SIDE in kernels/copy.cu."""
TRANSPOSED = 8
"""Length from which an axis that the result and the source do not share as the innermost is copied in tiles."""
TRANSPOSED_FIRST = 1 << 16
"""Elements from which an element-wise operation copies an operand that lies across the result into its order first."""

_ARITHMETIC = ("neg", "abs", "sign", "square", "add", "sub", "mul", "maximum", "minimum", "where")
_DIVISION = ("floor_divide", "remainder", "pow")
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")
_COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge", *_LOGIC, "isfinite")
_OF_BOOLS = ("add", "mul", "maximum", "minimum", "where")

WORDS = {1: ("uint8", np.uint8), 4: ("uint32", np.uint32), 8: ("uint64", np.uint64)}
"""Elements by their size, for kernels that only move them."""


def _variants(name: str, c_name: str, width: int) -> dict[int, Source]:
    return {w: Source(name, DTYPE=c_name, WIDTH=w) for w in {1, width}}


def _file(op: str, dtype: np.dtype[Any]) -> str | None:
    """The kernel file that has an operation on a dtype: what is not a program's, see ``_is_program``."""
    if op in _COMPARISON:
        return "comparison"
    if op in _ARITHMETIC:
        return "arithmetic" if not is_bool(dtype) or op in _OF_BOOLS else None
    return "integers" if not is_bool(dtype) else None


def _is_program(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether an operation is computed as a point-wise program."""
    return is_float(dtype) or (op in _LOGIC and is_bool(dtype))


def _width(dtype: np.dtype[Any]) -> int:
    return VECTOR_BYTES // dtype.itemsize


_KERNELS = (*_ARITHMETIC, *_DIVISION, *_COMPARISON)
"""Operations that have kernels of their own, for integers and bools."""

_SOURCES: dict[tuple[str, np.dtype[Any]], dict[int, Source]] = {
    (op, dtype): _variants(file, c_type(dtype), _width(dtype))
    for op in _KERNELS
    for dtype in ALL
    if not _is_program(op, dtype) and (file := _file(op, dtype))
}
_COPY = {size: _variants("copy", name, VECTOR_BYTES // size) for size, (name, _) in WORDS.items()}
SOURCES = tuple(
    dict.fromkeys(source for table in (_SOURCES, _COPY) for widths in table.values() for source in widths.values())
)


_ZERO = {dtype: dtype.type(0) for dtype in ALL}
"""What a kernel gets for a number where all operands are tensors."""

_COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


class ArrayOperations(DeviceEngine):
    """One loop kernel per operation, in vectors where memory allows it; see kernels/strided.cuh.

    Operations of floats are point-wise programs (``alpha.cu32.pointwise``).
    """

    # -- copies and fills ----------------------------------------------------------------------------------------

    def copy(self, source: Tensor, out: Tensor) -> None:
        if out.numel() == 0:
            return
        source = self._apart(source, out)
        if source.dtype != out.dtype:
            strides = broadcast_strides((source.shape, source.strides), out.ndim)
            source = Tensor(source.storage, source.offset, out.shape, strides, source.dtype)
            self.pointwise("copy", conversion(out.dtype), (source,), (), out)
        elif source.shape == out.shape and source.strides == out.strides and is_dense((out.shape, out.strides)):
            self._keep(source, out)
            self.device.copy(source.address, out.address, out.nbytes)
        elif (split := _split(source, out)) is not None:
            self._transpose(split, source, out)
        else:
            size = out.dtype.itemsize
            self._loop(_COPY[size], VECTOR_BYTES // size, "each_copy", out, (source,), WORDS[size][1](0))

    def _transpose(self, split: Tiles, source: Tensor, out: Tensor) -> None:
        extents = (np.int32(n) for n in (split.rows, split.columns, split.out_step, split.source_step))
        kernels = _COPY[out.dtype.itemsize][1]
        self.launch(kernels, "transpose", split.count, THREADS, split.loop, out, source, *extents)

    def fill(self, out: Tensor, value: Scalar) -> None:
        if out.numel() == 0:
            return
        size = out.dtype.itemsize
        word = np.full(1, value, out.dtype).view(WORDS[size][1])[0]
        if word == 0 and is_dense((out.shape, out.strides)):
            self._keep(out)
            self.device.clear(out.address, out.nbytes)
        else:
            self._loop(_COPY[size], VECTOR_BYTES // size, "each_copy", out, (None,), word)

    def _keep(self, *tensors: Tensor) -> None:
        # What the driver copies and clears is no launch, which would see to this.
        if self.capture is not None:
            self.capture.keep(*tensors)

    # -- element-wise --------------------------------------------------------------------------------------------

    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        tensors = [t for t in operands if isinstance(t, Tensor)]
        dtype = tensors[-1].dtype
        if op in NAMES and _is_program(op, dtype):
            program = program_of(op, tuple([kind_of(value) for value in operands]))
            numbers = [float(value) for value in operands if not isinstance(value, Tensor)]
            return self.pointwise(op, program, tensors, numbers, out)[0]
        widths = _SOURCES.get((op, dtype))
        if widths is None:
            raise _unknown(op, dtype)
        if out is None:
            out = self._result(tensors, bool_ if op in _COMPARISON else dtype)
        if out.numel() == 0:
            return out
        values: tuple[Any, ...] = ()
        if op == "where":
            values = tuple([_ZERO[dtype] if isinstance(v, Tensor) else number(v, dtype) for v in operands[1:]])
        elif len(operands) == 2:
            if len(tensors) == 2:
                values = (_ZERO[dtype],)
            elif op in _COMPARISON:
                return self._compare(op, operands, tensors[0], out)
            else:
                values = (number(operands[1] if operands[0] is tensors[0] else operands[0], dtype),)
        inputs = [self._input(value, out) if isinstance(value, Tensor) else None for value in operands]
        self._loop(widths, VECTOR_BYTES // dtype.itemsize, f"each_{op}", out, inputs, *values)
        return out

    def _compare(self, op: str, operands: Sequence[Operand], tensor: Tensor, out: Tensor) -> Tensor:
        """A comparison with a number, which may be one that the tensor's dtype cannot hold."""
        first = operands[0] is tensor
        value, dtype = operands[1] if first else operands[0], tensor.dtype
        if op in _LOGIC:
            value = bool(value)
        elif isinstance(value, float):
            wide = self.empty_like(tensor, widest_float)
            self.copy(tensor, wide)
            return self.elementwise(op, *((wide, value) if first else (value, wide)), out=out)
        else:
            low, high = limits(dtype)
            if not low <= value <= high:  # the answer is the same for every element
                self.fill(out, _COMPARE[op](low, value) if first else _COMPARE[op](value, low))
                return out
        value_or = [self._input(tensor, out), None]
        inputs = value_or if first else value_or[::-1]
        widths = _SOURCES[op, dtype]
        self._loop(widths, VECTOR_BYTES // dtype.itemsize, f"each_{op}", out, inputs, number(value, dtype))
        return out

    def _result(self, tensors: Sequence[Tensor], dtype: np.dtype[Any]) -> Tensor:
        """An empty tensor of the operands' broadcast shape, in the memory order of the largest."""
        key = tuple([(t.shape, t.strides) for t in tensors])
        found = _results.get(key)
        if found is None:
            if len(_results) >= MOST_RESULTS:
                _results.clear()
            found = _results[key] = _result_layout(tensors)
        shape, strides = found
        return Tensor(self.allocate(math.prod(shape) * dtype.itemsize), 0, shape, strides, dtype)

    def _input(self, value: Tensor, out: Tensor) -> Tensor:
        """An operand as a kernel may read it while it writes the result, in the result's memory order where it pays."""
        value = self._apart(value, out)
        if value.strides == out.strides or value.shape != out.shape or value.numel() < TRANSPOSED_FIRST:
            return value
        if _split(value, out) is None:
            return value
        moved = self.empty(value.shape, value.dtype, out.memory_order())
        self.copy(value, moved)
        return moved

    def _apart(self, value: Tensor, out: Tensor) -> Tensor:
        """An operand that is the result itself or shares no memory with it: one that lies across it is copied first."""
        if value.storage is not out.storage or not _overlap(value, out):
            return value
        same = value.offset == out.offset and value.strides == out.strides and value.shape == out.shape
        if same and value.dtype == out.dtype:
            return value
        copied = self.empty_like(value)
        self.copy(value, copied)
        return copied

    def _loop(
        self,
        widths: dict[int, Source],
        width: int,
        kernel: str,
        out: Tensor,
        inputs: Sequence[Tensor | None],
        *numbers: Any,
    ) -> None:
        """Launches a loop kernel: in vectors where every tensor's address and strides allow it."""
        if out.offset % width:
            width = 1
        layouts: list[Layout | None] = []
        for t in inputs:
            if t is None:
                layouts.append(None)
            else:
                layouts.append((t.shape, t.strides))
                if t.offset % width:
                    width = 1
        planned = plan((out.shape, out.strides), tuple(layouts), width)
        source = widths[planned.width]
        for piece in planned.pieces:
            tensors = (out, *inputs) if len(planned.pieces) == 1 else moved((out, *inputs), piece.offsets)
            self.launch(source, kernel, self.blocks(piece.steps, THREADS), THREADS, piece.loop, *tensors, *numbers)


_results: dict[tuple[Layout, ...], Layout] = {}
MOST_RESULTS = 8192
"""Layouts of results that are remembered."""


def _result_layout(tensors: Sequence[Tensor]) -> Layout:
    largest = max(tensors, key=Tensor.numel)
    if all(t.shape == largest.shape for t in tensors):
        return largest.shape, dense_strides(largest.shape, largest.memory_order())
    shape = np.broadcast_shapes(*(t.shape for t in tensors))
    strides = broadcast_strides((largest.shape, largest.strides), len(shape))
    return shape, dense_strides(shape, largest.view(0, shape, strides).memory_order())


def pointer(tensor: Tensor, offset: int) -> Tensor:
    """A place in a tensor's memory, or behind its end, whose address a kernel gets: nothing is read there by itself."""
    return Tensor(tensor.storage, offset, (), (), tensor.dtype)


def moved(tensors: Sequence[Tensor | None], offsets: Shape) -> list[Tensor | None]:
    """The tensors from a piece's first elements on."""
    pairs = zip(tensors, offsets, strict=True)
    return [None if t is None else pointer(t, t.offset + offset) for t, offset in pairs]


def _split(source: Tensor, out: Tensor) -> Tiles | None:
    return tiles((out.shape, out.strides), (source.shape, source.strides), TILE, TRANSPOSED)


def _overlap(first: Tensor, second: Tensor) -> bool:
    """Whether the runs of memory from the first to the last element of two tensors of one storage meet."""
    (a, b), (c, d) = _extent(first), _extent(second)
    return a < d and c < b


def _extent(x: Tensor) -> tuple[int, int]:
    """Bytes of the storage, from and to, among which a tensor's elements lie."""
    spans = [(n - 1) * stride for n, stride in zip(x.shape, x.strides, strict=True)]
    low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)
    item = x.dtype.itemsize
    return (x.offset + low) * item, (x.offset + high + 1) * item


def number(value: Scalar, dtype: np.dtype[Any]) -> Any:
    """A Python number beside tensors of a dtype, as a kernel's argument; integers wrap as the tensors' own do."""
    return scalar(dtype, float(value)) if is_float(dtype) else np.asarray(value).astype(dtype)[()]


def _unknown(op: str, dtype: np.dtype[Any]) -> Exception:
    if op in NAMES:
        return DtypeError(f"[elementwise] expected a dtype that has {op}, got {dtype}: cast it first")
    return ArgumentError(f"[elementwise] expected one of {', '.join(sorted(NAMES))}, got {op!r}")
