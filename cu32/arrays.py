"""ArrayOperations: the CUDA engine's copies, fills and element-wise operations over broadcast strided operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.composed import elementwise
from alpha.cu32.base import DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.cu32.strided import Shape, Tiles, broadcast_strides, is_dense, plan, tiles
from alpha.dtypes import ALL, DType, is_complex, is_float, is_integer, scalar, uint8
from alpha.engine import Operand, Scalar
from alpha.expressions.program import conversion
from alpha.tensor import Tensor

VECTOR_BYTES = 16
THREADS = 256
TILE = 32
"""Side of a transposition's tiles: SIDE in kernels/copy.cu."""
TRANSPOSED = 8
"""Length from which an axis that the result and the source do not share as the innermost is copied in tiles."""

WORDS = {1: ("uint8", np.uint8), 2: ("uint16", np.uint16), 4: ("uint32", np.uint32), 8: ("uint64", np.uint64)}
"""Elements by their size, for kernels that only move them."""

_COPY = {
    size: {width: Source("copy", DTYPE=name, WIDTH=width) for width in {1: 0, VECTOR_BYTES // size: 0}}
    for size, (name, _) in WORDS.items()
}
_PROGRESSION = {dtype: Source("progression", DTYPE=c_type(dtype), WHOLE=int(is_integer(dtype))) for dtype in ALL}
SOURCES = (*(source for widths in _COPY.values() for source in widths.values()), *_PROGRESSION.values())


class ArrayOperations(DeviceEngine):
    """Copies and fills in vectors where memory allows it; operations are programs (``alpha.cu32.pointwise``)."""

    # -- copies and fills ----------------------------------------------------------------------------------------

    def copy(self, source: Tensor, out: Tensor) -> None:
        if out.numel() == 0:
            return
        source = self._apart(source, out)
        if source.dtype != out.dtype and (is_complex(source.dtype) or is_complex(out.dtype)):
            with np.errstate(all="ignore"):
                self.copy(self.from_numpy(self.to_numpy(source).astype(out.dtype)), out)
        elif source.dtype != out.dtype:
            strides = broadcast_strides((source.shape, source.strides), out.ndim)
            source = Tensor(source.storage, source.offset, out.shape, strides, source.dtype)
            self.pointwise("copy", conversion(out.dtype), (source,), (), out)
        elif source.shape == out.shape and source.strides == out.strides and is_dense((out.shape, out.strides)):
            self._keep(source, out)
            self.device.copy(source.address, out.address, out.nbytes)
        elif out.dtype.itemsize in WORDS:
            split = _split(source, out)
            if split is not None:
                self._transpose(split, source, out)
            else:
                self._loop(out, source, WORDS[out.dtype.itemsize][1](0))
        else:
            strides = broadcast_strides((source.shape, source.strides), out.ndim)
            self.copy(_as_bytes(Tensor(source.storage, source.offset, out.shape, strides, out.dtype)), _as_bytes(out))

    def _transpose(self, split: Tiles, source: Tensor, out: Tensor) -> None:
        extents = (np.int32(n) for n in (split.rows, split.columns, split.out_step, split.source_step))
        kernels = _COPY[out.dtype.itemsize][1]
        self.launch(kernels, "transpose", split.count, THREADS, split.loop, out, source, *extents)

    def fill(self, out: Tensor, value: Scalar) -> None:
        if out.numel() == 0:
            return
        if out.dtype.itemsize not in WORDS:
            self.copy(self.from_numpy(np.full((), value, out.dtype)), out)
            return
        word = np.full(1, value, out.dtype).view(WORDS[out.dtype.itemsize][1])[0]
        if word == 0 and is_dense((out.shape, out.strides)):
            self._keep(out)
            self.device.clear(out.address, out.nbytes)
        else:
            self._loop(out, None, word)

    def progression(self, first: int | float, step: int | float, count: int, dtype: DType) -> Tensor:
        if dtype not in _PROGRESSION:
            return super().progression(first, step, count, dtype)
        out = self.empty((count,), dtype)
        if not count:
            return out
        source, grid = _PROGRESSION[dtype], self.blocks(count, THREADS)
        if isinstance(first, int):
            wrapped = (int(n) % (1 << 64) for n in (first, step))
            self.launch(source, "counted", grid, THREADS, out, count, *[np.uint64(n) for n in wrapped])
        else:
            with np.errstate(all="ignore"):
                second = np.float64(first) + step
            self.launch(source, "spaced", grid, THREADS, out, count, np.float64(first), second)
        return out

    def _keep(self, *tensors: Tensor) -> None:
        # What the driver copies and clears is no launch, which would see to this.
        if self.capture is not None:
            self.capture.keep(*tensors)

    # -- element-wise --------------------------------------------------------------------------------------------

    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        return elementwise.elementwise(self, op, operands, out)

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

    def _loop(self, out: Tensor, source: Tensor | None, word: Any) -> None:
        """Copies a tensor, or a number: in vectors where both tensors' addresses and strides allow it."""
        tensors = [t for t in (out, source) if t is not None]
        size = out.dtype.itemsize
        width = VECTOR_BYTES // size
        if any(t.offset % width for t in tensors):
            width = 1
        layout = None if source is None else (source.shape, source.strides)
        planned = plan((out.shape, out.strides), (layout,), width)
        for piece in planned.pieces:
            pair = (out, source) if len(planned.pieces) == 1 else moved((out, source), piece.offsets)
            grid = self.blocks(piece.steps, THREADS)
            self.launch(_COPY[size][planned.width], "each_copy", grid, THREADS, piece.loop, *pair, word)


def pointer(tensor: Tensor, offset: int) -> Tensor:
    """A place in a tensor's memory, or behind its end, whose address a kernel gets: nothing is read there by itself."""
    return Tensor(tensor.storage, offset, (), (), tensor.dtype)


def moved(tensors: Sequence[Tensor | None], offsets: Shape) -> list[Tensor | None]:
    """The tensors from a piece's first elements on."""
    pairs = zip(tensors, offsets, strict=True)
    return [None if t is None else pointer(t, t.offset + offset) for t, offset in pairs]


def _split(source: Tensor, out: Tensor) -> Tiles | None:
    return tiles((out.shape, out.strides), (source.shape, source.strides), TILE, TRANSPOSED)


def _as_bytes(x: Tensor) -> Tensor:
    """A tensor's memory with the bytes of its elements along one more axis."""
    item = x.dtype.itemsize
    strides = (*[item * stride for stride in x.strides], 1)
    return Tensor(x.storage, item * x.offset, (*x.shape, item), strides, uint8)


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
