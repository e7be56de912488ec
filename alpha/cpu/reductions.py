"""ReductionOperations: sums, running sums, means, products and norms of floats on the CPU engine's own kernels."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, types

from alpha.arguments import Shape
from alpha.cpu import compile, workers
from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.compile import Entry
from alpha.cpu.kernels import cumsum
from alpha.cpu.kernels import sums as kernels
from alpha.cpu.kernels.sums import ColumnSizes, LineSizes
from alpha.dtypes import is_float
from alpha.expressions.graph import Graph
from alpha.expressions.program import Program
from alpha.tensor import Tensor, dense_strides

SMALL = 1 << 12
"""Elements below which NumPy reduces: a kernel's launch, and its compilation where it is the first, save nothing."""

PART = 1 << 16
"""Elements of a task, about: enough to pay for the thread that takes it."""

MOST_PARTS = 64
"""Tasks into which long sums are cut at most, whatever the threads."""

STRIP = 2048
"""Columns of a task at most: their sums stay in the first cache."""


def _slopes() -> Program:
    """The gradient of a product without zeros, from the product, a factor and the product's gradient."""
    graph = Graph()
    y, x, grad = [graph.input(place) for place in range(3)]
    return Program(graph, [graph.apply("mul", graph.apply("div", y, x), grad)], [y, x, grad])


_SLOPES = _slopes()
_OPERATIONS = {"sum": kernels.SUM, "prod": kernels.PRODUCT}
_NO_PARTS = np.zeros(1)


class ReductionOperations(ArrayOperations):
    """Numbers are read as they lie, in lines or columns; what has neither is copied first."""

    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if op in _OPERATIONS and x.numel() >= SMALL and is_float(x.dtype):
            found = self._reduced(_OPERATIONS[op], x, axes, keepdims, 1.0)
            if found is not None:
                return found
        return super().reduce(op, x, axes, keepdims)

    def mean(self, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if x.numel() >= SMALL:
            found = self._reduced(kernels.SUM, x, axes, keepdims, None)
            if found is not None:
                return found
        return super().mean(x, axes, keepdims)

    def euclidean_norm(self, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if x.numel() >= SMALL:
            found = self._reduced(kernels.NORM, x, axes, keepdims, 1.0)
            if found is not None:
                return found
        return super().euclidean_norm(x, axes, keepdims)

    def prod_grad(self, grad: Tensor, x: Tensor, y: Tensor, axes: tuple[int, ...], everything: bool) -> Tensor:
        # A product that is a number other than 0 has no factor 0; NaN may be 0 times infinity.
        if (np.absolute(self.array(y)) > 0).all():
            return self.pointwise("prod", _SLOPES, (y, x, grad), ())[0]
        return super().prod_grad(grad, x, y, axes, everything)

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        if not is_float(x.dtype) or x.numel() < SMALL:
            return super().cumsum(x, axis)
        x = self.dense(x)
        y, order, item = self.empty_like(x), x.memory_order(), x.dtype.itemsize
        place = order.index(axis)
        blocks, columns = (math.prod(x.shape[a] for a in part) for part in (order[:place], order[place + 1 :]))
        strip = max(1, PART // x.shape[axis]) if columns == 1 else STRIP
        tasks = -(-blocks // strip) if columns == 1 else blocks * -(-columns // strip)
        workers.WORKERS.enter(
            _cumsum_entry(x.dtype),
            min(self.threads, tasks),
            (1.0, item, blocks, x.shape[axis], columns, strip, x.address, y.address),
        )
        return y

    def _reduced(
        self, op: int, x: Tensor, axes: tuple[int, ...], keepdims: bool, divisor: float | None
    ) -> Tensor | None:
        """The sum or product over a divisor, by default the number of elements; None of an expanded tensor."""
        dtype = x.dtype
        item = dtype.itemsize
        plan = _plan(x.shape, x.strides, axes, item)
        if plan is None:
            return None
        if plan.order is not None:
            return self._reduced(op, self.dense(x, plan.order), axes, keepdims, divisor)
        shape, strides, size, elements = _result(x.shape, x.memory_order(), axes, keepdims)
        out = Tensor(self.allocate(size * item), 0, shape, strides, dtype)
        parts = np.zeros(plan.parts) if plan.parts else _NO_PARTS
        count = float(elements) if divisor is None else divisor
        workers.WORKERS.enter(
            _entry(plan.kernel, dtype),
            min(self.threads, plan.tasks),
            (1.0, count, op, item, x.address, plan.sizes, out.storage.address, parts),
        )
        return out


class _Plan(NamedTuple):
    """How a tensor of some shape and strides is reduced over some axes."""

    order: Shape | None
    """The axes as a copy has to have them first; all else is then unused."""
    kernel: Any = None
    sizes: LineSizes | ColumnSizes | None = None
    parts: int = 0
    """Numbers of the buffer in which the parts of long sums meet; 0 where there is one part."""
    tasks: int = 1


class _Group(NamedTuple):
    """Neighbouring axes in memory, all reduced or all kept, that are one axis of some length and step, in elements."""

    reduced: bool
    length: int
    step: int


_NONE = _Group(False, 1, 0)


@lru_cache(maxsize=8192)
def _plan(shape: Shape, strides: Shape, axes: tuple[int, ...], item: int) -> _Plan | None:
    """The kernel and its sizes; None where an axis is expanded or runs backwards, or there is one element."""
    groups = _groups(shape, strides, axes)
    if not groups or any(group.step <= 0 for group in groups):
        return None
    inner = groups.pop()
    reduced, kept = ([g for g in groups if g.reduced is wanted] for wanted in (True, False))
    if inner.step != 1 or len(reduced) > 1 or len(kept) > 1:
        return _Plan((*(axis for axis in range(len(shape)) if axis not in axes), *axes))
    row, block = (reduced or [_NONE])[0], (kept or [_NONE])[0]
    steps = block.length, block.step * item, row.length, row.step * item
    if inner.reduced:
        bunch, cuts, tasks = _line_tasks(block.length, row.length, inner.length)
        return _Plan(
            None, kernels.reduce_lines, LineSizes(*steps, inner.length, bunch, cuts), 1 + tasks if cuts else 0, tasks
        )
    bunch, strip, tasks = _column_tasks(block.length, row.length, inner.length)
    pieces = -(-row.length // bunch)
    parts = 1 + block.length * pieces * inner.length if pieces > 1 else 0
    return _Plan(None, kernels.reduce_columns, ColumnSizes(*steps, inner.length, bunch, strip), parts, tasks)


def _groups(shape: Shape, strides: Shape, axes: tuple[int, ...]) -> list[_Group]:
    """The axes as groups, from the outermost in memory to the innermost."""
    groups: list[_Group] = []
    for axis in sorted((a for a, n in enumerate(shape) if n != 1), key=lambda a: (strides[a], -a)):
        reduced, length, step = axis in axes, shape[axis], strides[axis]
        if groups and groups[-1].reduced == reduced and step == groups[-1].length * groups[-1].step:
            groups[-1] = _Group(reduced, length * groups[-1].length, groups[-1].step)
        else:
            groups.append(_Group(reduced, length, step))
    return groups[::-1]


def _line_tasks(lines: int, segments: int, length: int) -> tuple[int, int, int]:
    """Lines or segments of a task, pieces of a segment (0 where a line is in one task), and the number of tasks."""
    work = segments * length
    if work <= 2 * PART or lines >= MOST_PARTS:
        bunch = max(1, min(lines, PART // work))
        return bunch, 0, -(-lines // bunch)
    most = MOST_PARTS // lines
    if length > 2 * PART:
        cuts = max(1, min(length // PART, most // segments))
        return 1, cuts, lines * segments * cuts
    bunch = max(1, PART // length, -(-segments // most))
    return bunch, 1, lines * -(-segments // bunch)


def _column_tasks(blocks: int, rows: int, columns: int) -> tuple[int, int, int]:
    """Rows of a task, its columns, and the number of tasks."""
    strip = min(columns, STRIP)
    strips = blocks * -(-columns // strip)
    bunch = max(PART // strip, -(-rows // max(1, MOST_PARTS // strips)))
    return bunch, strip, strips * -(-rows // bunch)


@lru_cache(maxsize=8192)
def _result(shape: Shape, order: Shape, axes: tuple[int, ...], keepdims: bool) -> tuple[Shape, Shape, int, int]:
    """A result's shape, strides and number of elements, and how many elements make one; ``order``: x's memory order."""
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    left = tuple(shape[axis] for axis in kept)
    steps = dense_strides(left, [kept.index(axis) for axis in order if axis in kept])
    size, count = math.prod(left), math.prod(shape[axis] for axis in axes)
    if keepdims:
        all_steps = dict(zip(kept, steps, strict=True))
        left = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
        steps = tuple(all_steps.get(axis, 1) for axis in range(len(shape)))
    return left, steps, size, count


@cache
def _cumsum_entry(dtype: np.dtype[Any]) -> Entry:
    """The kernel of running sums of numbers of a dtype."""
    return compile.entry(cumsum.cumsum, dtype, *[int64] * 7)


@cache
def _entry(kernel: Any, dtype: np.dtype[Any]) -> Entry:
    """A kernel for numbers of a dtype."""
    sizes = LineSizes if kernel is kernels.reduce_lines else ColumnSizes
    kinds = types.NamedTuple([int64] * len(sizes._fields), sizes)
    return compile.entry(kernel, dtype, float64, int64, int64, int64, kinds, int64, types.Array(float64, 1, "C"))
