"""The CPU engine's pooling: the geometry gives tables of (window, input) pairs, so that padding is never read."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import pooling as kernels
from alpha.engine import IMAGE_ORDER, WeightedPairs
from alpha.errors import ShapeError
from alpha.geometry import LONGEST, Axis, Geometry
from alpha.tensor import Tensor


class Tables(NamedTuple):
    """(Window, input) pairs along rows and along columns; the pairs of an image are all combinations of both."""

    rows: Array
    columns: Array
    sizes: kernels.PoolSizes


class PoolingOperations(HostEngine):
    """Pooling. Results lie in image order (H, W, N, C); arguments in another memory order are copied into it."""

    def max_pool2d(self, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
        _check("max_pool2d", x, geometry.input)
        size = (x.shape[0], *geometry.output, x.shape[3])
        out, tables = self.empty(size, x.dtype, IMAGE_ORDER), _tables(geometry, True)
        if not need_taps:
            x = self.dense(x, IMAGE_ORDER)
            self.launch(
                kernels.maxima, x.dtype.type(0), size[0] * size[3], x.dtype.itemsize, *tables, x.address,
                out.address, tasks=-(-size[1] * size[2] // kernels.POSITIONS),
            )  # fmt: skip
            return out, None
        taps = self.empty(size, np.dtype(np.int32), IMAGE_ORDER)
        self.launch(
            kernels.max_forward, self._matrix(x), *tables, self._matrix(out), self._matrix(taps),
        )  # fmt: skip
        return out, taps

    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        _check("max_pool2d_grad", dy, geometry.output)
        if taps.shape != dy.shape:
            raise ShapeError(f"[max_pool2d_grad] expected taps of shape {dy.shape}, got {taps.shape}")
        dx = self.empty((dy.shape[0], *geometry.input, dy.shape[3]), dy.dtype, IMAGE_ORDER)
        self.launch(
            kernels.max_backward, self._matrix(dy), self._matrix(taps), *_tables(geometry, False),
            self._matrix(dx),
        )  # fmt: skip
        return dx

    def avg_pool2d(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        _check("avg_pool2d", x, geometry.input)
        out = self.empty((x.shape[0], *geometry.output, x.shape[3]), x.dtype, IMAGE_ORDER)
        full = math.prod(geometry.filter) if count_padding else 0
        tables = _tables(geometry, True)
        self.launch(kernels.means, self._matrix(x), *tables, full, self._matrix(out))
        return out

    def avg_pool2d_grad(self, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        _check("avg_pool2d_grad", dy, geometry.output)
        dx = self.empty((dy.shape[0], *geometry.input, dy.shape[3]), dy.dtype, IMAGE_ORDER)
        full = math.prod(geometry.filter) if count_padding else 0
        rows, columns, _ = _tables(geometry, True)
        self.launch(
            kernels.means_backward, self._matrix(dy), *_tables(geometry, False), full,
            rows[kernels.COUNT], columns[kernels.COUNT], self._matrix(dx),
        )  # fmt: skip
        return dx

    def combine(self, x: Tensor, pairs: WeightedPairs) -> Tensor:
        count, length, values = x.shape
        positions = len(pairs.starts) - 1
        first, last = pairs.span
        if first < 0 or last >= length:
            raise ShapeError(f"[combine] expected pairs within an axis of {length}, got {last}")
        weights = pairs.weights if x.dtype == pairs.weights.dtype else pairs.weights32
        out = self.empty((count, positions, values), x.dtype)
        block = max(1, kernels.COLUMNS // max(values, 1))
        tasks = count * -(-positions // block) * -(-values // kernels.COLUMNS)
        self.launch(
            kernels.combine, self.array(x), pairs.starts, pairs.sources, weights, self.array(out), block, tasks=tasks,
        )  # fmt: skip
        return out

    def _matrix(self, tensor: Tensor) -> Array:
        """The tensor's memory as (H * W, N * C); a copy where the tensor does not lie in image order."""
        if not tensor.is_contiguous(IMAGE_ORDER):
            source, tensor = tensor, self.empty(tensor.shape, tensor.dtype, IMAGE_ORDER)
            self.copy(source, tensor)
        n, h, w, c = tensor.shape
        flat = tensor.view(tensor.offset, (h * w, n * c), (n * c, 1))
        return self.array(flat)


def _check(function: str, x: Tensor, size: tuple[int, int]) -> None:
    """The kernels follow the geometry's tables into x: its size must be the geometry's."""
    if x.ndim != 4 or x.shape[1:3] != size:
        raise ShapeError(f"[{function}] expected a tensor (N, {size[0]}, {size[1]}, C), got {x.shape}")


@caches.kept
def _tables(geometry: Geometry, by_output: bool) -> Tables:
    """The input positions of each window, or, if not ``by_output``, the windows that hold each input position."""
    row_pairs, row_steps = _table(geometry.rows, by_output)
    column_pairs, column_steps = _table(geometry.columns, by_output)
    width = geometry.columns.input if by_output else geometry.columns.output
    most = int(row_pairs[kernels.COUNT].max()) * int(column_pairs[kernels.COUNT].max())
    sizes = kernels.PoolSizes(width, geometry.columns.filter, most, *row_steps, *column_steps)
    return Tables(row_pairs, column_pairs, sizes)


def _table(axis: Axis, by_output: bool) -> tuple[Array, tuple[int, int]]:
    """An axis' table, made one part after another, and the steps from one pair to the next."""
    size = axis.output if by_output else axis.input
    table, steps = np.empty((3, size), np.int64), (0, 0)
    for first in range(0, size, LONGEST):
        stop = min(first + LONGEST, size)
        pairs = axis.outputs_from(first, stop) if by_output else axis.inputs_from(first, stop)
        table[:, first:stop] = pairs.count, pairs.first, pairs.other
        steps = pairs.step, pairs.other_step
    return table, steps
