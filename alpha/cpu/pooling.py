"""The CPU engine's pooling: the geometry gives tables of (window, input) pairs, so that padding is never read."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.composed import stored
from alpha.cpu import tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.images import ImagePlan, image_plan, in_runs
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels import pooling as kernels
from alpha.cpu.launches import Call, Word, call_of, constant, learn, of_result, of_tensor
from alpha.cpu.loops import machine, windows
from alpha.cpu.loops.windows import COUNT, Windows
from alpha.cpu.tasks import Record
from alpha.dtypes import int32, is_brain, is_stored
from alpha.engine import IMAGE_ORDER
from alpha.errors import ShapeError
from alpha.geometry import LONGEST, Axis, Geometry
from alpha.launches import AVG_POOL2D, AVG_POOL2D_GRAD, MAX_POOL2D, MAX_POOL2D_GRAD, Launches
from alpha.tensor import Tensor, dense_strides


class PoolingOperations(HostEngine):
    """Pooling. Results lie in image order (H, W, N, C); arguments whose channels are not dense are copied into it."""

    @stored.takes_stored_dtypes
    def max_pool2d(self, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
        if _is_converted(x):
            both: tuple[Tensor, Tensor | None] = stored.converted(self, "max_pool2d", x, geometry, need_taps)
            return both
        launched = MAX_POOL2D.launch(x, geometry, need_taps)
        if launched is not None:
            return launched if need_taps else (launched, None)
        _check("max_pool2d", x, geometry.input)
        dense, found = self._planned(x, geometry, by_output=True)
        result = found.result
        out = result.empty(self, x.dtype)
        taps = Tensor(self.allocate(result.elements * 4), 0, result.shape, result.strides, int32) if need_taps else None
        kernel = kernels.choices if need_taps else kernels.maxima
        self._pool(kernel, found, dense, out, taps)
        if dense is x and not is_stored(x.dtype):
            results = (out,) if taps is None else (out, taps)
            words = (of_tensor(0), of_result(0), of_result(1) if need_taps else constant(0))
            self._learn(Pooled(MAX_POOL2D, (x, geometry, need_taps), kernel, found), words, results)
        return out, taps

    @stored.takes_stored_dtypes
    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        if _is_converted(dy):
            dx: Tensor = stored.converted(self, "max_pool2d_grad", dy, taps, geometry)
            return dx
        launched: Tensor | None = MAX_POOL2D_GRAD.launch(dy, taps, geometry)
        if launched is not None:
            return launched
        _check("max_pool2d_grad", dy, geometry.output)
        if taps.shape != dy.shape:
            raise ShapeError(f"[max_pool2d_grad] expected taps of shape {dy.shape}, got {taps.shape}")
        ordered = self.dense(taps, IMAGE_ORDER)
        dense, found = self._planned(dy, geometry, by_output=False)
        dx = found.result.empty(self, dy.dtype)
        self._pool(kernels.gradients, found, dense, dx, ordered)
        if dense is dy and ordered is taps and not is_stored(dy.dtype):
            words = (of_tensor(0), of_result(0), of_tensor(1))
            self._learn(Pooled(MAX_POOL2D_GRAD, (dy, taps, geometry), kernels.gradients, found), words, (dx,))
        return dx

    def avg_pool2d(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        launched: Tensor | None = AVG_POOL2D.launch(x, geometry, count_padding)
        if launched is not None:
            return launched
        _check("avg_pool2d", x, geometry.input)
        if all(axis.filter == axis.input and axis.padding == (0, 0) for axis in (geometry.rows, geometry.columns)):
            return self.mean(x, (1, 2), True)  # one window that is the image
        full = math.prod(geometry.filter) if count_padding else 0
        return self._averaged(AVG_POOL2D, (x, geometry, count_padding), by_output=True, full=full)

    def avg_pool2d_grad(self, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        launched: Tensor | None = AVG_POOL2D_GRAD.launch(dy, geometry, count_padding)
        if launched is not None:
            return launched
        _check("avg_pool2d_grad", dy, geometry.output)
        full = math.prod(geometry.filter) if count_padding else 0
        return self._averaged(AVG_POOL2D_GRAD, (dy, geometry, count_padding), by_output=False, full=full)

    def _averaged(
        self, known: Launches, arguments: tuple[Tensor, Geometry, bool], by_output: bool, full: int
    ) -> Tensor:
        x, geometry, count_padding = arguments
        dense, found = self._planned(x, geometry, by_output, full)
        kernel: Kernel = kernels.means_of_sizes
        if by_output or count_padding:  # all windows of a gradient have one weight
            kernel = _loop(8 * x.dtype.itemsize, found.result.streams)
        out = found.result.empty(self, x.dtype)
        self._pool(kernel, found, dense, out)
        if dense is x:
            self._learn(Pooled(known, arguments, kernel, found), (of_tensor(0), of_result(0), constant(0)), (out,))
        return out

    def _planned(self, x: Tensor, geometry: Geometry, by_output: bool, full: int = 0) -> tuple[Tensor, Plan]:
        """What is read, a copy where its channels are not dense, and the plan for it."""
        x = in_runs(self, x)
        return x, _plan(geometry, by_output, full, x.shape, x.strides, x.dtype.itemsize)

    def _pool(self, kernel: Kernel, found: Plan, x: Tensor, out: Tensor, taps: Tensor | None = None) -> None:
        count, item = found.record.tasks, x.dtype.itemsize
        if not count:
            return
        read, chosen = x.storage.address + x.offset * item, 0 if taps is None else taps.address
        job = _JOB(found.record.address, read, out.storage.address, chosen)
        if isinstance(kernel, machine.Loop):
            tasks.run(kernel, job, count, self.threads)
        else:
            kernel[item].run(job, count, self.threads)

    def _learn(self, pooled: Pooled, words: tuple[Word, ...], results: tuple[Tensor, ...]) -> None:
        """Makes the launches know what was pooled; ``words``: of the job, behind the plan's."""
        found, record = pooled.plan, pooled.plan.record
        if record.tasks:
            kernel, job = pooled.kernel, (constant(record.address), *words)

            def call() -> Call:
                made = kernel if isinstance(kernel, machine.Loop) else kernel[results[0].dtype.itemsize]
                return call_of(made, job, results, found.result.elements, record.tasks, found)

            learn(pooled.known, self, call, *pooled.arguments)


def _is_converted(x: Tensor) -> bool:
    """Whether the kernels have no such numbers."""
    return is_stored(x.dtype) and not is_brain(x.dtype)


Kernel = dict[int, JobKernel] | machine.Loop
"""By the bytes of a number, or the loop for them."""


class Pooled(NamedTuple):
    """What was pooled, and the launches that are to know it."""

    known: Launches
    arguments: tuple[Any, ...]
    kernel: Kernel
    plan: Plan


_JOB = struct.Struct("4q").pack


def _check(function: str, x: Tensor, size: tuple[int, int]) -> None:
    """The kernels follow the geometry's tables into x: its size must be the geometry's."""
    if x.ndim != 4 or x.shape[1:3] != size:
        raise ShapeError(f"[{function}] expected a tensor (N, {size[0]}, {size[1]}, C), got {x.shape}")


class Plan(NamedTuple):
    """How images of a size are pooled."""

    result: ImagePlan
    record: Record
    tables: tuple[Array, ...]
    """Those that the record has the addresses of."""


@caches.kept
def _plan(geometry: Geometry, by_output: bool, full: int, shape: Shape, strides: Shape, item: int) -> Plan:
    """For what is read: x by its outputs, or gradients by the inputs, not ``by_output``, that they flow to."""
    result = image_plan(shape, strides, geometry.output if by_output else geometry.input, item)
    rows, (row_pair, row_tap) = _table(geometry.rows, by_output)
    columns, (column_pair, column_tap) = _table(geometry.columns, by_output)
    row_sizes, column_sizes = _sizes(geometry.rows), _sizes(geometry.columns)
    taps = dense_strides(result.shape if by_output else shape, IMAGE_ORDER)
    words = Windows(
        rows=rows.ctypes.data, columns=columns.ctypes.data, window_columns=geometry.columns.filter, row_pair=row_pair,
        row_tap=row_tap, column_pair=column_pair, column_tap=column_tap, taps_row=4 * taps[1], taps_column=4 * taps[2],
        taps_run=4 * taps[0], full=full, sizes_rows=row_sizes.ctypes.data, sizes_columns=column_sizes.ctypes.data,
    )  # fmt: skip
    return Plan(result, Record((*result.pixels, *words)), (rows, columns, row_sizes, column_sizes))


@cache
def _loop(bits: int, streams: bool) -> machine.Loop:
    """The loop of means; see ``alpha.cpu.loops.windows``."""
    return machine.loop(windows.ir_of(bits, streams))


def _sizes(axis: Axis) -> Array:
    """How many elements of each window lie inside the input."""
    sizes: Array = _table(axis, True)[0][COUNT].copy()
    return sizes


def _table(axis: Axis, by_output: bool) -> tuple[Array, tuple[int, int]]:
    """The inputs of each window of an axis, or, if not ``by_output``, the windows that hold each input.

    The table is made one part after another; and the steps from one pair to the next.
    """
    size = axis.output if by_output else axis.input
    table, steps = np.empty((3, size), np.int64), (0, 0)
    for first in range(0, size, LONGEST):
        stop = min(first + LONGEST, size)
        pairs = axis.outputs_from(first, stop) if by_output else axis.inputs_from(first, stop)
        table[:, first:stop] = pairs.count, pairs.first, pairs.other
        steps = pairs.step, pairs.other_step
    return table, steps
