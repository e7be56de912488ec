"""AxisOperations: writing by index, running products and extremes, and the first of an order, along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.composed import arrays, ordering
from alpha.cpu.base import Array
from alpha.cpu.kernels import along_axis as kernels
from alpha.cpu.sorting import SortOperations
from alpha.dtypes import default_int, info, is_bool
from alpha.tensor import Tensor

_OPERATIONS = {
    "put": kernels.PUT,
    "add": kernels.ADD,
    "multiply": kernels.MULTIPLY,
    "maximum": kernels.MAXIMUM,
    "minimum": kernels.MINIMUM,
}
_OF_BOOLS = {"add": "maximum", "multiply": "minimum"}

MOST_KEPT = 1 << 10
"""Elements of a line that are kept in a heap at most; of more the line is sorted."""


class AxisOperations(SortOperations):
    """Every dtype; what is not dense in row-major order is copied first."""

    def put_along(self, out: Tensor, index: Tensor, values: Tensor, axis: int, op: str = "put") -> None:
        is_whole = index.shape[:axis] == out.shape[:axis] and index.shape[axis + 1 :] == out.shape[axis + 1 :]
        if not is_whole or index.dtype != default_int or not out.is_contiguous():
            arrays.put_along(self, out, index, values, axis, op)
            return
        code = _OPERATIONS[_OF_BOOLS.get(op, op) if is_bool(out.dtype) else op]
        self.act(kernels.combine, code, *[self._along(x, axis) for x in (out, index, values)])

    def cumprod(self, x: Tensor, axis: int) -> Tensor:
        y = self.empty(x.shape, x.dtype)
        lines = self._along(x, axis)
        room = np.empty(lines.shape[2], info(x.dtype).accumulator)
        self.act(kernels.running_products, lines, self._along(y, axis), room)
        return y

    def running_extremes(self, x: Tensor, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
        values, indices = self.empty(x.shape, x.dtype), self.empty(x.shape, default_int)
        if not x.numel():  # the kernel begins with the first number of each line
            return values, indices
        results = self._along(values, axis), self._along(indices, axis)
        self.act(kernels.running_extremes, self._along(x, axis), 1 if largest else -1, *results)
        return values, indices

    def topk(self, x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
        if not k or not x.numel() or k > MOST_KEPT or k > max(x.shape[axis] // 8, 64):
            return ordering.topk(self, x, k, axis, largest)
        others = [other for other in range(x.ndim) if other != axis]
        shape, order = (*x.shape[:axis], k, *x.shape[axis + 1 :]), (*others, axis)
        values, indices = self.empty(shape, x.dtype, order), self.empty(shape, default_int, order)
        results = [self._lines(part, axis) for part in (values, indices)]
        self.act(kernels.first_of_lines, self._lines(self.dense(x, order), axis), 1 if largest else -1, *results)
        return self.dense(values, range(x.ndim)), self.dense(indices, range(x.ndim))

    def rank(self, x: Tensor, axis: int, place: int) -> Tensor:
        out = self.empty((*x.shape[:axis], 1, *x.shape[axis + 1 :]), default_int)
        self.act(_rank, self.operand(x), axis, place, self.operand(out))
        return out

    def _along(self, x: Tensor, axis: int) -> Array:
        """Dense numbers as (outer, along, inner)."""
        shape = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        return _numbers(self.operand(self.dense(x, range(x.ndim)))).reshape(shape)

    def _lines(self, x: Tensor, axis: int) -> Array:
        """Numbers whose axis is the innermost in memory, as lines."""
        length = x.shape[axis]
        return _numbers(self.operand(x.strided(x.offset, (x.numel() // length, length), (length, 1))))


def _rank(array: Array, axis: int, place: int, out: Array) -> None:
    np.copyto(out, np.take(np.argpartition(array, place, axis), [place], axis))


def _numbers(array: np.ndarray[Any, Any]) -> Array:
    """Bools as uint8."""
    return array.view(np.uint8) if is_bool(array.dtype) else array
