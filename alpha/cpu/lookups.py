"""The CPU engine's lookups along an axis: entries of a table by their indices, and adding to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.composed import arrays
from alpha.cpu.copies import CopyOperations
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import indexing as kernels
from alpha.dtypes import is_float
from alpha.tensor import Tensor

SMALL = 1 << 12
"""Numbers below which NumPy looks up whole entries: a launch costs more."""

TAGS = {4: np.float32(0), 8: np.float64(0)}
"""What tells the kernels a number's size."""

TASK = 1 << 14
"""Numbers per task, about."""


class LookupOperations(CopyOperations):
    """Tables of numbers of 4 or 8 bytes; sums of float32 and float64."""

    def gather_along(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        index = self.dense(index, range(index.ndim))
        lines = lines_along(x, index, axis)
        if lines is None:
            return arrays.gather_along(self, x, index, axis)
        out = self.empty(index.shape, x.dtype)
        self.take(lines, x, index, out)
        return out

    def scatter_along(self, out: Tensor, index: Tensor, values: Tensor, axis: int) -> None:
        index = self.dense(index, range(index.ndim))
        lines = lines_along(out, index, axis) if adds(out, values) and values.shape == index.shape else None
        if lines is None:
            arrays.scatter_along(self, out, index, values, axis)
        else:
            self.add(lines, out, index, values)

    def take(self, lines: kernels.Lines, x: Tensor, index: Tensor, out: Tensor) -> None:
        """Looks up what ``lines`` describe into a dense tensor; the index is dense."""
        block = max(1, TASK // max(lines.inner, 1))
        tasks = -(-lines.outer * lines.length // block)
        tag, item = TAGS[x.dtype.itemsize], x.dtype.itemsize
        self.launch(
            kernels.take_along, tag, item, lines, index.address, x.address, out.address, block, tasks=tasks
        )  # fmt: skip

    def add(self, lines: kernels.Lines, out: Tensor, index: Tensor, values: Tensor) -> None:
        """Adds values to the entries that ``lines`` describe; the index is dense."""
        values, item = self.dense(values, range(values.ndim)), out.dtype.itemsize
        lanes = ISA.lanes(item)
        shares = self.threads if lines.outer < self.threads else 1  # of one outer position
        block = -(-lines.inner // (shares * lanes)) * lanes
        tasks = lines.outer * -(-lines.inner // max(block, 1))
        self.launch(
            kernels.add_along, TAGS[item], item, lines, index.address, out.address, values.address, block, tasks=tasks
        )  # fmt: skip


def adds(out: Tensor, values: Any) -> bool:
    """Whether the kernel adds such values to such entries."""
    return isinstance(values, Tensor) and is_float(out.dtype) and values.dtype == out.dtype


def lines_along(x: Tensor, index: Tensor, axis: int) -> kernels.Lines | None:
    """The lookup by an index with one element per result, dense in row-major order; None where no kernel serves."""
    before, after = index.shape[:axis], index.shape[axis + 1 :]
    outer, inner = _merged(before, x.strides[:axis]), _merged(after, x.strides[axis + 1 :])
    if outer is None or inner is None or x.dtype.itemsize not in TAGS:
        return None
    count, length = math.prod(after), index.shape[axis]
    return _lines(x, axis, (math.prod(before), length, count), (outer, inner), (length * count, count, 1))


def lines_of_entries(x: Tensor, index: Tensor, axis: int) -> kernels.Lines | None:
    """The lookup by an index of whole entries along an axis, dense in row-major order; None if no kernel serves."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    outer, inner = _merged(before, x.strides[:axis]), _merged(after, x.strides[axis + 1 :])
    if outer is None or inner is None or x.dtype.itemsize not in TAGS:
        return None
    return _lines(x, axis, (math.prod(before), index.numel(), math.prod(after)), (outer, inner), (0, 1, 0))


def _lines(
    x: Tensor, axis: int, sizes: tuple[int, int, int], strides: tuple[int, int], index: tuple[int, int, int]
) -> kernels.Lines:
    item = x.dtype.itemsize
    steps = (strides[0] * item, x.strides[axis] * item, strides[1] * item)
    return kernels.Lines(*sizes, x.shape[axis], *steps, *index)


def _merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """The stride of axes as one, in row-major order; None where they have gaps between them."""
    step: int | None = None
    covered = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if step is not None and stride != step * covered:
            return None
        step = stride if step is None else step
        covered *= n
    return 0 if step is None else step


def only_axis(index: tuple[Any, ...]) -> int | None:
    """The axis of an index that holds one integer array and otherwise whole axes."""
    entries = [axis for axis, entry in enumerate(index) if isinstance(entry, np.ndarray)]
    others = [entry for entry in index if not isinstance(entry, np.ndarray)]
    whole = all(isinstance(entry, slice) and entry == slice(None) for entry in others)
    return entries[0] if len(entries) == 1 and whole and index[entries[0]].dtype != bool else None
