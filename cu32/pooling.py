"""PoolingOperations: maxima and means over windows on the CUDA engine, by tables of pairs from the geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.cu32.base import DeviceEngine, c_type, in_vectors
from alpha.cu32.compiler import Source
from alpha.dtypes import info
from alpha.engine import IMAGE_ORDER, WeightedPairs
from alpha.errors import ShapeError
from alpha.geometry import Axis, Geometry, Pairs
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

SOURCES = in_vectors("pooling")

THREADS = 256
"""Threads per block, as the kernels are compiled for."""

IDLE_BELOW_THREADS = 1024
"""With fewer threads than this, a multiprocessor is half idle."""

LARGE_WINDOW = 64
"""Elements of a window from which few threads over them are slower than two launches."""

ALIGNMENT = 16
"""Bytes to which the addresses of packed accesses are aligned."""


class PoolingOperations(DeviceEngine):
    """Results lie in image order (H, W, N, C); arguments in another order are copied into it."""

    def max_pool2d(self, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
        _check("max_pool2d", x, geometry.input)
        size = (x.shape[0], *geometry.output, x.shape[3])
        out, taps = self.empty(size, x.dtype, IMAGE_ORDER), self.empty(size, np.dtype(np.int32), IMAGE_ORDER)
        self._by_output("max_forward", geometry, (self.dense(x, IMAGE_ORDER),), (out, taps))
        return out, taps

    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        _check("max_pool2d_grad", dy, geometry.output)
        if taps.shape != dy.shape:
            raise ShapeError(f"[max_pool2d_grad] expected taps of shape {dy.shape}, got {taps.shape}")
        dx = self.empty((dy.shape[0], *geometry.input, dy.shape[3]), dy.dtype, IMAGE_ORDER)
        sources = self.dense(dy, IMAGE_ORDER), self.dense(taps, IMAGE_ORDER)
        self._by_input("max_backward", geometry, sources, dx)
        return dx

    def avg_pool2d(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        _check("avg_pool2d", x, geometry.input)
        shape = (x.shape[0], *geometry.output, x.shape[3])
        if self._leaves_idle(geometry, math.prod(shape)):
            if _is_global(geometry):
                total = self.dense(self.reduce("sum", x, (1, 2), True), IMAGE_ORDER)
                return self.elementwise("div", total, math.prod(geometry.filter), out=total)
            for part in _along_each_axis(geometry):
                x = self.avg_pool2d(x, part, count_padding)
            return x
        out = self.empty(shape, x.dtype, IMAGE_ORDER)
        full = math.prod(geometry.filter) if count_padding else 0
        self._by_output("mean_forward", geometry, (self.dense(x, IMAGE_ORDER),), (out,), full)
        return out

    def avg_pool2d_grad(self, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        _check("avg_pool2d_grad", dy, geometry.output)
        dx = self.empty((dy.shape[0], *geometry.input, dy.shape[3]), dy.dtype, IMAGE_ORDER)
        full = math.prod(geometry.filter) if count_padding else 0
        self._by_input("mean_backward", geometry, (self.dense(dy, IMAGE_ORDER),), dx, full)
        return dx

    def combine(self, x: Tensor, pairs: WeightedPairs) -> Tensor:
        count, length, values = x.shape
        positions = len(pairs.starts) - 1
        if len(pairs.sources) and not 0 <= pairs.sources.min() <= pairs.sources.max() < length:
            raise ShapeError(f"[combine] expected pairs within an axis of {length}, got {pairs.sources.max()}")
        out = self.empty((count, positions, values), x.dtype)
        if out.numel() == 0:
            return out
        table = self.constant(
            ("pooling.combine", pairs), lambda: np.concatenate([pairs.starts, pairs.sources]).astype(np.int32)
        )
        weights = self.constant(("pooling.weights", pairs, x.dtype), lambda: pairs.weights.astype(x.dtype))
        aligned = all(tensor.address % ALIGNMENT == 0 for tensor in (x, out))
        vector = info(x.dtype).vector
        vec = vector if values % vector == 0 and aligned else 1
        source = Source("pooling", REAL=c_type(x.dtype), VEC=vec)
        sizes = np.array([count, length, positions, values // vec], np.int64).tobytes()
        grid = self.blocks(out.numel() // vec, THREADS)
        self.launch(source, "combine", grid, THREADS, x, table, weights, out, sizes)
        return out

    def _leaves_idle(self, geometry: Geometry, results: int) -> bool:
        """Whether one thread per result would leave most of the device idle, over windows worth two launches."""
        leaves_idle = results < IDLE_BELOW_THREADS * self.device.multiprocessors
        return leaves_idle and min(geometry.filter) > 1 and math.prod(geometry.filter) >= LARGE_WINDOW

    def _by_output(
        self, kernel: str, geometry: Geometry, sources: Sequence[Tensor], results: Sequence[Tensor], *after: int
    ) -> None:
        """A thread each output pack, over the inputs under its window."""
        rows, columns = (
            self.constant(("pooling.by_output", axis), lambda axis=axis: _table(axis.pairs_by_output, None))  # type: ignore[misc]
            for axis in (geometry.rows, geometry.columns)
        )
        self._launch_pool(kernel, geometry, geometry.columns.input, sources, (rows, columns), results, *after)

    def _by_input(
        self, kernel: str, geometry: Geometry, sources: Sequence[Tensor], result: Tensor, *after: int
    ) -> None:
        """A thread each input pack, over the outputs whose windows hold it."""
        rows, columns = (
            self.constant(("pooling.by_input", axis), lambda axis=axis: _table(axis.pairs_by_input, axis))  # type: ignore[misc]
            for axis in (geometry.rows, geometry.columns)
        )
        self._launch_pool(kernel, geometry, geometry.columns.output, sources, (rows, columns), (result,), *after)

    def _launch_pool(
        self,
        kernel: str,
        geometry: Geometry,
        other: int,
        sources: Sequence[Tensor],
        tables: Sequence[Tensor],
        results: Sequence[Tensor],
        *after: int,
    ) -> None:
        """``other``: the width of the side that is read."""
        out = results[0]
        if out.numel() == 0:
            return
        n, height, width, c = out.shape
        aligned = all(tensor.address % ALIGNMENT == 0 for tensor in (*sources, *results))
        vector = info(out.dtype).vector
        vec = vector if n * c % vector == 0 and aligned else 1
        window = np.array([height, width, other, geometry.filter[1], n * c // vec], np.int64).tobytes()
        source = Source("pooling", REAL=c_type(out.dtype), VEC=vec)
        grid = self.blocks(out.numel() // vec, THREADS)
        self.launch(source, kernel, grid, THREADS, *sources, *tables, *results, window, *after)


def _check(function: str, x: Tensor, size: tuple[int, int]) -> None:
    """The kernels follow the geometry's tables into x: its size must be the geometry's."""
    if x.ndim != 4 or x.shape[1:3] != size:
        raise ShapeError(f"[{function}] expected a tensor (N, {size[0]}, {size[1]}, C), got {x.shape}")


def _is_global(geometry: Geometry) -> bool:
    """Whether there is one window, the whole image."""
    axes = geometry.rows, geometry.columns
    return all(axis.filter == axis.input and axis.output == 1 and axis.padding[0] == 0 for axis in axes)


def _along_each_axis(geometry: Geometry) -> tuple[Geometry, Geometry]:
    """Windows along the columns alone, then along the rows of what they give: a mean of means of equal weight."""
    rows, columns = geometry.rows, geometry.columns
    return Geometry(Axis(rows.input, 1), columns), Geometry(rows, Axis(columns.output, 1))


def _table(pairs: Pairs, outputs: Axis | None) -> Array:
    """The kernels' table of one axis: starts of the groups' pairs, then (position, tap, elements inside the window).

    The last is told of the output positions of an axis, where that is the side the pairs name.
    """
    pair_ends = np.cumsum(pairs.count)
    number = int(pair_ends[-1])
    of = np.repeat(np.arange(len(pair_ends)), pairs.count)
    within = np.arange(number) - np.repeat(pair_ends - pairs.count, pairs.count)
    table = np.zeros(len(pair_ends) + 1 + 3 * number, np.int32)
    table[1 : len(pair_ends) + 1] = pair_ends
    triples = table[len(pair_ends) + 1 :].reshape(number, 3)
    triples[:, 0] = pairs.first[of] + within * pairs.step
    triples[:, 1] = pairs.other[of] + within * pairs.other_step
    if outputs is not None:
        triples[:, 2] = outputs.pairs_by_output.count[triples[:, 0]]
    return table
