"""ReductionOperations: reductions along axes, positions of extremes, running sums and sorting on the CUDA engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from alpha import dtypes
from alpha.cu32.base import MAX_GRID_YZ, DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.dtypes import bool_, default_int
from alpha.tensor import Tensor

_TYPES = tuple(c_type(dtype) for dtype in dtypes.ALL)
SOURCES = tuple(Source(name, TYPE=kind) for name in ("reductions", "scan", "sort") for kind in _TYPES)

THREADS = 256
"""Threads per block of every kernel here but sort_runs."""

AXES = 6
"""Axes that a kernel can walk over, after merging those that lie end to end."""

LANE_ELEMENTS = 4
"""Elements that a thread of a reduction has at least to itself, before another joins it."""

PART_ELEMENTS = 16
"""Elements that a thread keeps at least where a result's elements are split between blocks."""

WARP = 32
"""Neighbouring results that a block takes at least, where neighbouring threads take neighbouring results."""

VALUE_BYTES = 16
"""Most bytes of a partial result."""

MANY_LINES = 256
"""Lines beside each other from which threads take one each, and its segment, so that neighbours read neighbours."""

SEGMENTS = 1024
"""Most segments that a line of a running sum is cut into."""

SEGMENT_ELEMENTS = 64
"""Elements that a segment has at least, where a thread sums it alone."""

RUN = 1024
"""Elements that a block sorts in shared memory."""

Axis = tuple[int, int]
"""Length and stride."""


Pair = tuple[Tensor, Tensor]
"""Values and indices."""


class Shape(NamedTuple):
    """How a block's threads share out results: so many neighbouring results, so many lanes each, lanes neighbours?"""

    outputs: int
    lanes: int
    neighbours: bool


class ReductionOperations(DeviceEngine):
    """Tensors are seen as kept and reduced axes, each merged where they lie end to end."""

    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        dtype = x.dtype
        if op in ("any", "all"):
            dtype = bool_
        elif op in ("sum", "prod"):
            dtype = dtypes.info(dtype).total
        out = self._reduced(f"reduce_{op}", x, axes, dtype)
        return _with_axes(out, axes) if keepdims else out

    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        return self._reduced(f"reduce_{op}", x, (axis,), default_int)

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        out = self.empty_like(x, dtypes.info(x.dtype).total)
        if out.numel() == 0:
            return out
        source, lines = Source("scan", TYPE=c_type(x.dtype)), _lines(x, out, axis)
        if lines is None:
            return self.cumsum(self._in_axis_order(x, axis), axis)
        length, count = x.shape[axis], x.numel() // x.shape[axis]
        waves = 4 * self.device.multiprocessors
        if count >= MANY_LINES and x.strides[axis] != 1:
            kernels = "cumsum_line_totals", "cumsum_lines"
            blocks, shortest = self.blocks(count, THREADS), SEGMENT_ELEMENTS
        else:
            kernels = "cumsum_totals", "cumsum_segments"
            blocks, shortest = count, 4 * THREADS
        parts = max(1, min(waves // blocks, SEGMENTS, length // shortest))
        segment = -(-length // parts)
        parts = -(-length // segment)
        totals = self.scratch(8 * count * parts)
        if parts > 1:
            self.launch(source, kernels[0], (blocks, parts - 1), THREADS, x, totals, lines, segment)
        self.launch(source, kernels[1], (blocks, parts), THREADS, x, totals, out, lines, segment)
        return out

    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        values, indices = self.empty_like(x), self.empty_like(x, default_int)
        if x.numel() == 0:
            return values, indices
        source, length = Source("sort", TYPE=c_type(x.dtype)), x.shape[axis]
        run = min(RUN, _power(max(2, length)))
        runs = -(-length // run)
        stages = self._stages(x, axis, (runs - 1).bit_length(), (values, indices))
        lines = _lines(x, stages[0][0], axis)
        if lines is None:
            return self.sort(self._in_axis_order(x, axis), axis)
        rows = max(1, THREADS // run)
        blocks = -(-x.numel() // length * runs // rows)
        self.launch(source, "sort_runs", blocks, (run // 2, rows), x, *stages[0], lines, run, runs)
        for (keys, places), target in pairwise(stages):
            lines = _lines(keys, target[0], axis)
            grid = self.blocks(x.numel(), THREADS)
            self.launch(source, "merge_runs", grid, THREADS, keys, places, *target, lines, run)
            run *= 2
        return values, indices

    def _stages(self, x: Tensor, axis: int, passes: int, result: Pair) -> list[Pair]:
        """Where the sorted runs and then each merging pass write: to and fro between two copies, at last the result."""
        order = (*(a for a in x.memory_order() if a != axis), axis)
        copies = [
            (self.empty(x.shape, x.dtype, order), self.empty(x.shape, default_int, order))
            for _ in range(min(passes, 2))
        ]
        return [*(copies[i % 2] for i in range(passes)), result]

    def _reduced(self, kernel: str, x: Tensor, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        kept = [axis for axis in x.memory_order() if axis not in axes]
        ranks = sorted(kept)
        shape = [x.shape[axis] for axis in ranks]
        out = self.empty(shape, dtype, [ranks.index(axis) for axis in kept])
        results = out.numel()
        if results == 0:
            return out
        count = math.prod(x.shape[axis] for axis in axes)
        if count == 0:  # no strides lead anywhere, so none of them merge
            outer, inner = [(results, 0)], [(0, 0)]
        else:
            outer, inner = _merged(x, kept), _merged(x, sorted(axes, key=lambda axis: -abs(x.strides[axis])))
        if len(outer) > AXES or len(inner) > 2:
            return self._reduced(kernel, self.dense(x, (*kept, *axes)), axes, dtype)
        block = _shape(results, count, outer, inner)
        blocks = -(-results // block.outputs)
        parts = max(
            1, min(4 * self.device.multiprocessors // blocks, count // (block.lanes * PART_ELEMENTS), MAX_GRID_YZ)
        )
        partial = self.scratch(VALUE_BYTES * parts * results) if parts > 1 else None
        counters = self._counters_of_blocks() if parts > 1 else None
        problem = _problem(results, outer, inner, block)
        threads = block.outputs * block.lanes
        source = Source("reductions", TYPE=c_type(x.dtype))
        self.launch(source, kernel, (blocks, parts), threads, x, out, partial, counters, problem)
        return out

    def _counters_of_blocks(self) -> Tensor:
        """What tells a block that it is the last one: of one stream, whose kernels run one after another."""
        return self.constant(("reductions.counters", self.device.stream), self._no_counts)

    def _no_counts(self) -> np.ndarray[Any, Any]:
        """Counters for as many blocks as may be split into parts; the kernels set them back to 0."""
        return np.zeros(4 * self.device.multiprocessors, np.int32)

    def _in_axis_order(self, x: Tensor, axis: int) -> Tensor:
        """A dense copy whose axes merge into lines along one."""
        return self.dense(x, (*(a for a in range(x.ndim) if a != axis), axis))


def _with_axes(out: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The result with each reduced axis put back at length 1."""
    shape, strides = list(out.shape), list(out.strides)
    for axis in axes:
        shape.insert(axis, 1)
        strides.insert(axis, 1)
    return out.strided(out.offset, tuple(shape), tuple(strides))


def _merged(x: Tensor, axes: Iterable[int]) -> list[Axis]:
    """Axes, outermost first, as few as can be: those of length 1 left out, those that lie end to end made one."""
    found: list[Axis] = []
    for axis in axes:
        length, stride = x.shape[axis], x.strides[axis]
        if length == 1:
            continue
        if found and found[-1][1] == length * stride:
            found[-1] = (found[-1][0] * length, stride)
        else:
            found.append((length, stride))
    return found


def _shape(results: int, count: int, outer: Sequence[Axis], inner: Sequence[Axis]) -> Shape:
    """Neighbouring threads take what lies next to each other: elements of a result, or results."""
    wanted = _power(-(-count // LANE_ELEMENTS))
    neighbours = not outer or (bool(inner) and abs(inner[-1][1]) < abs(outer[-1][1]))
    if neighbours:
        lanes = min(THREADS, wanted)
        return Shape(min(THREADS // lanes, _power(results)), lanes, True)
    outputs = min(WARP, _power(results))
    lanes = min(THREADS // outputs, wanted)
    return Shape(min(THREADS // lanes, _power(results)), lanes, False)


def _problem(results: int, outer: Sequence[Axis], inner: Sequence[Axis], block: Shape) -> bytes:
    """The kernels' struct Problem."""
    (rows, down), (columns, across) = [(1, 0), (1, 0), *inner][-2:]
    lengths, strides = _padded(outer)
    numbers = [results, columns, rows, across, down, *lengths, *strides, len(outer), *block]
    return np.array(numbers, np.int64).tobytes()


def _lines(x: Tensor, out: Tensor, axis: int) -> bytes | None:
    """The kernels' struct Lines, of a result of x's shape; None where there are too many axes for it."""
    length = x.shape[axis]
    others = [a for a in out.memory_order() if a != axis and x.shape[a] > 1]
    found: list[tuple[int, int, int]] = []
    for a in others:
        size, stride, out_stride = x.shape[a], x.strides[a], out.strides[a]
        if found and found[-1][1:] == (size * stride, size * out_stride):
            found[-1] = (found[-1][0] * size, stride, out_stride)
        else:
            found.append((size, stride, out_stride))
    if len(found) > AXES:
        return None
    sizes, strides = _padded([(size, stride) for size, stride, _ in found])
    _, out_strides = _padded([(size, stride) for size, _, stride in found])
    head = [x.numel() // length, length, x.strides[axis], out.strides[axis], len(found)]
    return np.array([*head, *sizes, *strides, *out_strides], np.int64).tobytes()


def _padded(axes: Sequence[Axis]) -> tuple[list[int], list[int]]:
    """Lengths and strides, the innermost axis first, for a struct's arrays."""
    rest = AXES - len(axes)
    inwards = list(reversed(axes))
    return [n for n, _ in inwards] + [1] * rest, [s for _, s in inwards] + [0] * rest


def _power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()
