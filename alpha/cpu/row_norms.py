"""RowNormOperations: layer and RMS norm on the CPU engine, one pass over memory each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import float64, int64, types

from alpha.arguments import Shape
from alpha.cpu import compile, workers
from alpha.cpu.base import HostEngine
from alpha.cpu.compile import Entry
from alpha.cpu.kernels import row_norms as kernels
from alpha.cpu.kernels.row_norms import RowSizes
from alpha.tensor import Tensor

TASK = 1 << 14
"""Elements of a task of the forward pass, about."""

GRADIENT_ROWS, GRADIENT_TASKS = 64, 32
"""Rows of a task of the gradient at least, and its most tasks: each sums the weight's gradient by itself."""


class RowNormOperations(HostEngine):
    """The last axes are a row, which lies dense; rows come in any order."""

    def row_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float, centered: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        x = self.dense(x, _order(x, axes))
        sizes = _sizes(x.shape, axes, x.dtype.itemsize, centered)
        y, statistics = self.empty_like(x), self.empty((sizes.rows, 2), np.dtype(np.float64))
        factor, shift = (self._row(part, x, axes, fill) for part, fill in ((weight, 1), (bias, 0)))
        addresses = [tensor.address for tensor in (x, factor, shift, y, statistics)]
        self._enter(kernels.row_norm, x.dtype, sizes, 1.0, float(eps), sizes, *addresses)
        return y, (statistics,)

    def row_norm_grad(
        self,
        dy: Tensor,
        x: Tensor,
        weight: Tensor | None,
        statistics: tuple[Tensor, ...],
        axes: int,
        centered: bool,
        needs: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        order = _order(x, axes)
        x, dy, shape = self.dense(x, order), self.dense(dy, order), x.shape[-axes:]
        sizes = _sizes(x.shape, axes, x.dtype.itemsize, centered)
        sizes = sizes._replace(tasks=max(1, min(GRADIENT_TASKS, sizes.rows // GRADIENT_ROWS)))
        dx, dweight, dbias = self.empty_like(x), self.empty(shape, x.dtype), self.empty(shape, x.dtype)
        factor = self._row(weight, x, axes, 1)
        parts = np.zeros(1 + 2 * sizes.tasks * sizes.columns)
        addresses = [tensor.address for tensor in (dy, x, factor, *statistics, dx, dweight, dbias)]
        self._enter(kernels.row_norm_grad, x.dtype, sizes, 1.0, sizes, *addresses, parts)
        return tuple([part if needed else None for part, needed in zip((dx, dweight, dbias), needs, strict=True)])

    def _row(self, part: Tensor | None, x: Tensor, axes: int, fill: int) -> Tensor:
        """A weight or bias as the kernels read it, dense; where there is none, of the number that changes nothing."""
        if part is not None:
            return self.dense(part, range(part.ndim))
        row = self.empty(x.shape[-axes:], x.dtype)
        self.fill(row, fill)
        return row

    def _enter(self, kernel: Any, dtype: np.dtype[Any], sizes: RowSizes, *arguments: Any) -> None:
        workers.WORKERS.enter(_entry(kernel, dtype), min(self.threads, sizes.tasks), arguments)


def _order(x: Tensor, axes: int) -> Shape:
    """The memory order in which x is normalised: its own where rows lie dense in it, else row-major."""
    order = x.memory_order()
    last = tuple(range(x.ndim - axes, x.ndim))
    return order if order[x.ndim - axes :] == last else tuple(range(x.ndim))


@lru_cache(maxsize=8192)
def _sizes(shape: Shape, axes: int, item: int, centered: bool) -> RowSizes:
    columns, rows = math.prod(shape[-axes:]), math.prod(shape[:-axes])
    return RowSizes(rows, columns, -(-rows // max(1, TASK // columns)), item, int(centered))


@cache
def _entry(kernel: Any, dtype: np.dtype[Any]) -> Entry:
    """A kernel for numbers of a dtype."""
    sizes = types.NamedTuple([int64] * len(RowSizes._fields), RowSizes)
    if kernel is kernels.row_norm:
        return compile.entry(kernel, dtype, float64, sizes, *[int64] * 5)
    return compile.entry(kernel, dtype, sizes, *[int64] * 7, types.Array(float64, 1, "C"))
