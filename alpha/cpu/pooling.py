"""The CPU engine's pooling: tables of pairs from the geometry, so that padding is never visited."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import pooling as kernels
from alpha.engine import IMAGE_ORDER, WeightedPairs
from alpha.errors import ShapeError
from alpha.geometry import Axis, Geometry, Groups
from alpha.tensor import Tensor


class Table(NamedTuple):
    """WeightedPairs by position: those of p are starts[p]..starts[p + 1] of the other side's positions and the taps."""

    starts: Array
    sources: Array
    taps: Array


class PoolingOperations(HostEngine):
    """Results lie in image order (H, W, N, C); arguments in another order are copied into it."""

    def max_pool2d(self, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
        _check("max_pool2d", x, geometry.input)
        size = (x.shape[0], *geometry.output, x.shape[3])
        out, table = self.empty(size, x.dtype, IMAGE_ORDER), _by_output(geometry)
        if not need_taps:
            x, places = self.dense(x, IMAGE_ORDER), len(table.starts) - 1
            self.launch(
                kernels.maxima, x.dtype.type(0), places, size[0] * size[3], x.dtype.itemsize, table.starts,
                table.sources, x.address, out.address, tasks=-(-places // kernels.POSITIONS),
            )  # fmt: skip
            return out, None
        taps = self.empty(size, np.dtype(np.int32), IMAGE_ORDER)
        self._pool(kernels.max_forward, self._matrix(x), *table, self._matrix(out), self._matrix(taps))
        return out, taps

    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        _check("max_pool2d_grad", dy, geometry.output)
        if taps.shape != dy.shape:
            raise ShapeError(f"[max_pool2d_grad] expected taps of shape {dy.shape}, got {taps.shape}")
        dx = self.empty((dy.shape[0], *geometry.input, dy.shape[3]), dy.dtype, IMAGE_ORDER)
        table = _by_input(geometry)
        self._pool(kernels.max_backward, self._matrix(dy), self._matrix(taps), *table, self._matrix(dx))
        return dx

    def avg_pool2d(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        _check("avg_pool2d", x, geometry.input)
        out = self.empty((x.shape[0], *geometry.output, x.shape[3]), x.dtype, IMAGE_ORDER)
        table = _by_output(geometry)
        weights = np.repeat(_shares(geometry, count_padding), np.diff(table.starts)).astype(x.dtype)
        self._pool(kernels.weighted_sum, self._matrix(x), table.starts, table.sources, weights, self._matrix(out))
        return out

    def avg_pool2d_grad(self, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        _check("avg_pool2d_grad", dy, geometry.output)
        dx = self.empty((dy.shape[0], *geometry.input, dy.shape[3]), dy.dtype, IMAGE_ORDER)
        table = _by_input(geometry)
        weights = _shares(geometry, count_padding)[table.sources].astype(dy.dtype)
        self._pool(kernels.weighted_sum, self._matrix(dy), table.starts, table.sources, weights, self._matrix(dx))
        return dx

    def combine(self, x: Tensor, pairs: WeightedPairs) -> Tensor:
        count, length, values = x.shape
        positions = len(pairs.starts) - 1
        if len(pairs.sources) and not 0 <= pairs.sources.min() <= pairs.sources.max() < length:
            raise ShapeError(f"[combine] expected pairs within an axis of {length}, got {pairs.sources.max()}")
        out = self.empty((count, positions, values), x.dtype)
        block = max(1, kernels.COLUMNS // max(values, 1))
        tasks = count * -(-positions // block) * -(-values // kernels.COLUMNS)
        self.launch(
            kernels.combine, self.array(x), pairs.starts, pairs.sources, pairs.weights.astype(x.dtype), self.array(out),
            block, tasks=tasks,
        )  # fmt: skip
        return out

    def _matrix(self, tensor: Tensor) -> Array:
        """Memory as (H * W, N * C); a copy where the tensor does not lie in image order."""
        if not tensor.is_contiguous(IMAGE_ORDER):
            source, tensor = tensor, self.empty(tensor.shape, tensor.dtype, IMAGE_ORDER)
            self.copy(source, tensor)
        n, h, w, c = tensor.shape
        flat = tensor.view(tensor.offset, (h * w, n * c), (n * c, 1))
        return self.array(flat)

    def _pool(self, kernel: Any, *arguments: Any) -> None:
        self.launch(kernel, *arguments)


def _check(function: str, x: Tensor, size: tuple[int, int]) -> None:
    """The kernels follow the geometry's tables into x: its size must be the geometry's."""
    if x.ndim != 4 or x.shape[1:3] != size:
        raise ShapeError(f"[{function}] expected a tensor (N, {size[0]}, {size[1]}, C), got {x.shape}")


@lru_cache(maxsize=256)
def _by_output(geometry: Geometry) -> Table:
    """For each output position the input positions under its window, and their taps."""
    rows, columns = geometry.rows, geometry.columns
    return _cross(rows.by_output, columns.by_output, columns.input, columns.filter)


@lru_cache(maxsize=256)
def _by_input(geometry: Geometry) -> Table:
    """For each input position the output positions whose windows hold it, and the tap they hold it under."""
    rows, columns = geometry.rows, geometry.columns
    return _cross(rows.by_input, columns.by_input, columns.output, columns.filter)


def _cross(rows: Groups, columns: Groups, width: int, taps_wide: int) -> Table:
    """The pairs of a 2-D problem from those of its axes, positions and taps flattened."""
    starts, sources, taps = [0], [], []
    for row in rows:
        for column in columns:
            sources += [i * width + j for i, _ in row for j, _ in column]
            taps += [f * taps_wide + g for _, f in row for _, g in column]
            starts.append(len(sources))
    return Table(np.array(starts, np.int64), np.array(sources, np.int64), np.array(taps, np.int32))


def _shares(geometry: Geometry, count_padding: bool) -> Array:
    """1 / (elements averaged) of each output position, float64; 0 for a window without elements."""
    if count_padding:
        return np.full(geometry.output[0] * geometry.output[1], 1 / (geometry.filter[0] * geometry.filter[1]))
    counts = np.multiply.outer(_inside(geometry.rows), _inside(geometry.columns)).reshape(-1)
    return 1 / np.maximum(counts, 1)


def _inside(axis: Axis) -> Array:
    """Taps inside the input at each output position of an axis."""
    return np.array([len(axis.trim(o)) for o in range(axis.output)])
