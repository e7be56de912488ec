"""The CPU engine's pooling: the geometry gives tables of (window, input) pairs, so that padding is never read."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.copies import LARGE_BYTES
from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels import pooling as kernels
from alpha.cpu.launches import Call, Word, call_of, constant, learn, of_result, of_tensor
from alpha.cpu.loops import machine, windows
from alpha.cpu.loops.pixels import PIECE_BYTES, TASK_BYTES
from alpha.cpu.loops.windows import COUNT, Pooling
from alpha.dtypes import int32
from alpha.engine import IMAGE_ORDER
from alpha.errors import ShapeError
from alpha.geometry import LONGEST, Axis, Geometry
from alpha.launches import AVG_POOL2D, AVG_POOL2D_GRAD, MAX_POOL2D, MAX_POOL2D_GRAD, Launches
from alpha.tensor import Tensor, dense_strides

FEWEST = 8
"""Channels below which images are copied into image order, where all of theirs are one run."""


class PoolingOperations(HostEngine):
    """Pooling. Results lie in image order (H, W, N, C); arguments whose channels are not dense are copied into it."""

    def max_pool2d(self, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
        launched = MAX_POOL2D.launch(x, geometry, need_taps)
        if launched is not None:
            return launched if need_taps else (launched, None)
        _check("max_pool2d", x, geometry.input)
        dense, found = self._planned(x, geometry, by_output=True)
        out = Tensor(self.allocate(found.nbytes), 0, found.shape, found.strides, x.dtype)
        taps = Tensor(self.allocate(found.elements * 4), 0, found.shape, found.strides, int32) if need_taps else None
        kernel = kernels.choices if need_taps else kernels.maxima
        self._pool(kernel, found, dense, out, taps)
        if dense is x:
            results = (out,) if taps is None else (out, taps)
            words = (of_tensor(0), of_result(0), of_result(1) if need_taps else constant(0))
            self._learn(Pooled(MAX_POOL2D, (x, geometry, need_taps), kernel, found), words, results)
        return out, taps

    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        launched: Tensor | None = MAX_POOL2D_GRAD.launch(dy, taps, geometry)
        if launched is not None:
            return launched
        _check("max_pool2d_grad", dy, geometry.output)
        if taps.shape != dy.shape:
            raise ShapeError(f"[max_pool2d_grad] expected taps of shape {dy.shape}, got {taps.shape}")
        ordered = self.dense(taps, IMAGE_ORDER)
        dense, found = self._planned(dy, geometry, by_output=False)
        dx = Tensor(self.allocate(found.nbytes), 0, found.shape, found.strides, dy.dtype)
        self._pool(kernels.gradients, found, dense, dx, ordered)
        if dense is dy and ordered is taps:
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
            kernel = _loop(8 * x.dtype.itemsize, found.streams)
        out = Tensor(self.allocate(found.nbytes), 0, found.shape, found.strides, x.dtype)
        self._pool(kernel, found, dense, out)
        if dense is x:
            self._learn(Pooled(known, arguments, kernel, found), (of_tensor(0), of_result(0), constant(0)), (out,))
        return out

    def _planned(self, x: Tensor, geometry: Geometry, by_output: bool, full: int = 0) -> tuple[Tensor, Plan]:
        """What is read, a copy where its channels are not dense, and the plan for it."""
        x = in_runs(self, x)
        return x, _plan(geometry, by_output, full, x.shape, x.strides, x.dtype.itemsize)

    def _pool(self, kernel: Kernel, found: Plan, x: Tensor, out: Tensor, taps: Tensor | None = None) -> None:
        if not found.tasks:
            return
        item = x.dtype.itemsize
        read, chosen = x.storage.address + x.offset * item, 0 if taps is None else taps.address
        job = _JOB(found.address, read, out.storage.address, chosen)
        if isinstance(kernel, machine.Loop):
            tasks.run(kernel, job, found.tasks, self.threads)
        else:
            kernel[item].run(job, found.tasks, self.threads)

    def _learn(self, pooled: Pooled, words: tuple[Word, ...], results: tuple[Tensor, ...]) -> None:
        """Makes the launches know what was pooled; ``words``: of the job, behind the plan's."""
        found = pooled.plan
        if found.tasks:
            kernel, job = pooled.kernel, (constant(found.address), *words)

            def call() -> Call:
                made = kernel if isinstance(kernel, machine.Loop) else kernel[results[0].dtype.itemsize]
                return call_of(made, job, results, found.elements, found.tasks, found)

            learn(pooled.known, self, call, *pooled.arguments)


Kernel = dict[int, JobKernel] | machine.Loop
"""By the bytes of a number, or the loop for them."""


class Pooled(NamedTuple):
    """What was pooled, and the launches that are to know it."""

    known: Launches
    arguments: tuple[Any, ...]
    kernel: Kernel
    plan: Plan


_JOB = struct.Struct("4q").pack


def in_runs(engine: HostEngine, x: Tensor) -> Tensor:
    """The images, or a copy in image order of those whose numbers do not lie in runs that are worth it."""
    images, _, _, channels = x.shape
    if (x.strides[3] != 1 and channels > 1) or (channels < FEWEST and images > 1):
        return engine.dense(x, IMAGE_ORDER)
    return x


def runs_of(shape: Shape, strides: Shape) -> tuple[int, int, int]:
    """The runs behind a pixel of images ``in_runs``, their numbers, and the step from one to the next."""
    images, _, _, channels = shape
    if images == 1 or strides[0] == channels:
        return 1, images * channels, 0
    return images, channels, strides[0]


def _check(function: str, x: Tensor, size: tuple[int, int]) -> None:
    """The kernels follow the geometry's tables into x: its size must be the geometry's."""
    if x.ndim != 4 or x.shape[1:3] != size:
        raise ShapeError(f"[{function}] expected a tensor (N, {size[0]}, {size[1]}, C), got {x.shape}")


class Plan(NamedTuple):
    """How images of a size are pooled: the result's elements, bytes, shape and strides, and what the kernel reads."""

    elements: int
    nbytes: int
    shape: Shape
    strides: Shape
    tasks: int
    streams: bool
    """Whether means are written past the caches."""
    address: int
    """The record's."""
    kept: tuple[Array, ...]
    """The record, and the tables that it has the addresses of."""


@caches.kept
def _plan(geometry: Geometry, by_output: bool, full: int, shape: Shape, strides: Shape, item: int) -> Plan:
    """For what is read: x by its outputs, or gradients by the inputs, not ``by_output``, that they flow to."""
    images, channels = shape[0], shape[3]
    height, width = geometry.output if by_output else geometry.input
    result = (images, height, width, channels)
    order = dense_strides(result, IMAGE_ORDER)
    runs, length, from_run = runs_of(shape, strides)
    piece = min(length, PIECE_BYTES // item)
    pieces = -(-length // max(piece, 1))
    elements = math.prod(result)
    positions = max(1, TASK_BYTES // max(1, piece * item))
    blocks = -(-height * width // positions)
    rows, (row_pair, row_tap) = _table(geometry.rows, by_output)
    columns, (column_pair, column_tap) = _table(geometry.columns, by_output)
    row_sizes, column_sizes = _sizes(geometry.rows), _sizes(geometry.columns)
    read = [stride * item for stride in strides]
    write = [stride * item for stride in order]
    taps = dense_strides(result if by_output else shape, IMAGE_ORDER)
    words = Pooling(
        tasks=runs * pieces * blocks if elements else 0, positions=positions, blocks=blocks, pieces=pieces, piece=piece,
        length=length, rows=rows.ctypes.data, columns=columns.ctypes.data, height=height, width=width,
        window_columns=geometry.columns.filter, row_pair=row_pair, row_tap=row_tap, column_pair=column_pair,
        column_tap=column_tap, from_row=read[1], from_column=read[2], from_run=from_run * item,
        to_row=write[1], to_column=write[2], to_run=write[0], taps_row=4 * taps[1], taps_column=4 * taps[2],
        taps_run=4 * taps[0], full=full, sizes_rows=row_sizes.ctypes.data, sizes_columns=column_sizes.ctypes.data,
    )  # fmt: skip
    record = np.array(words, np.int64)
    kept = (record, rows, columns, row_sizes, column_sizes)
    streams = elements * item >= LARGE_BYTES and not any(step % ISA.bytes for step in write[:3])
    return Plan(elements, elements * item, result, order, words.tasks, streams, record.ctypes.data, kept)


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
