"""ReductionOperations: sums, means, variances, products, norms, extremes and running sums of floats, as loops."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tapes, tasks
from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.base import Array
from alpha.cpu.launches import Call, call_of, learn, parts
from alpha.cpu.loops import fold_columns, fold_lines, folds, machine, running, variances
from alpha.cpu.loops.axis import COLUMNS, LINES, SHORT_LINES, are_short, plan_and_kind
from alpha.cpu.loops.axis import plan as axis_plan
from alpha.cpu.loops.fold_columns import STRIP, ColumnPlan
from alpha.cpu.loops.fold_lines import LinePlan
from alpha.cpu.loops.folds import MAX, MIN, NORM, PRODUCT, SUM
from alpha.cpu.loops.variances import VariancePlan
from alpha.dtypes import default_int, is_float
from alpha.expressions.graph import Graph
from alpha.expressions.program import Program
from alpha.launches import CUMSUM, REDUCTIONS, VARIANCE
from alpha.tensor import Tensor, dense_strides, memory_order

PART = 1 << 15
"""Elements of a task, about: enough to pay for the thread that takes it."""

MOST_PARTS = 64
"""Tasks into which long sums are cut at most, whatever the threads."""


def _slopes() -> Program:
    """The gradient of a product without zeros, from the product, a factor and the product's gradient."""
    graph = Graph()
    y, x, grad = [graph.input(place) for place in range(3)]
    return Program(graph, [graph.apply("mul", graph.apply("div", y, x), grad)], [y, x, grad])


_SLOPES = _slopes()
_OPERATIONS = (SUM, PRODUCT, MAX, MIN)


class ReductionOperations(ArrayOperations):
    """Numbers are read as they lie, in lines or columns; what has neither is copied first."""

    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        found = self._folded(op, False, x, axes, keepdims) if op in _OPERATIONS and is_float(x.dtype) else None
        return super().reduce(op, x, axes, keepdims) if found is None else found

    def channel_sum(self, x: Tensor) -> Tensor:
        return self.reduce(SUM, x, tuple(range(x.ndim - 1)), False)

    def mean(self, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        found = self._folded(SUM, True, x, axes, keepdims)
        return super().mean(x, axes, keepdims) if found is None else found

    def euclidean_norm(self, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        found = self._folded(NORM, False, x, axes, keepdims)
        return super().euclidean_norm(x, axes, keepdims) if found is None else found

    def variance(self, x: Tensor, axes: tuple[int, ...], correction: float, keepdims: bool) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] | None = VARIANCE.launch(x, axes, correction, keepdims)
        if found is not None:
            return found
        plan = _variance_plan((x.shape, x.strides, x.dtype), axes, correction, keepdims)
        if plan.loop is None:
            return super().variance(x, axes, correction, keepdims)
        lines = self.dense(x, plan.order)
        results = (
            Tensor(self.allocate(plan.nbytes), 0, plan.shape, plan.strides, x.dtype),
            Tensor(self.allocate(plan.nbytes), 0, plan.kept, plan.kept_strides, x.dtype),
        )
        kept = tapes.zeros(plan.words if plan.tasks > 1 and self.threads > 1 else 0)
        addresses = [one.storage.address for one in results]
        job = _VARIANCE_JOB(plan.record.address, *addresses, lines.address, kept.ctypes.data)
        tasks.run(plan.loop, job, plan.tasks, self.threads)
        if lines is x:
            learn(VARIANCE, self, lambda: plan.call(results, x.numel()), x, axes, correction, keepdims)
        return results

    def prod_grad(self, grad: Tensor, x: Tensor, y: Tensor, axes: tuple[int, ...], everything: bool) -> Tensor:
        answer = self.empty((1,), default_int)
        self.act(_are_products_of_no_zero, self.operand(y), self.operand(answer))
        if self.decided(answer):
            return self.pointwise("prod", _SLOPES, (y, x, grad), ())[0]
        return super().prod_grad(grad, x, y, axes, everything)

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        found: Tensor | None = CUMSUM.launch(x, axis)
        if found is not None:
            return found
        if not is_float(x.dtype) or not x.numel():
            return super().cumsum(x, axis)
        x = self.dense(x)
        y, plan = self.empty_like(x), _running_plan(x.shape, x.memory_order(), axis, x.dtype)
        tasks.run(plan.loop, _RUNNING_JOB(plan.record.address, y.storage.address, x.address), plan.tasks, self.threads)
        learn(CUMSUM, self, lambda: plan.call(y), x, axis)
        return y

    def _folded(self, op: str, mean: bool, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor | None:
        """The fold over axes, or the mean; None where NumPy does it: of no elements, or of some that repeat."""
        known = REDUCTIONS["mean" if mean else op]
        found: Tensor | None = known.launch(x, axes, keepdims)
        if found is not None:
            return found
        plan = _plan(op, mean, (x.shape, x.strides, x.dtype), axes, keepdims)
        if plan.is_copy:
            return self.copied(x).strided(0, plan.shape, plan.strides)
        if plan.repeats:
            return self._of_repeated(op, mean, x, axes, keepdims, plan.repeats)
        if plan.order is not None:
            return self._folded(op, mean, self.dense(x, plan.order), axes, keepdims)
        if plan.loop is None:
            return None
        out = Tensor(self.allocate(plan.nbytes), 0, plan.shape, plan.strides, x.dtype)
        kept = tapes.zeros(plan.words if plan.tasks > 1 and self.threads > 1 else 0)
        job = _JOB(plan.record.address, out.storage.address, x.address, kept.ctypes.data)
        tasks.run(plan.loop, job, plan.tasks, self.threads)
        learn(known, self, lambda: plan.call(out, x.numel()), x, axes, keepdims)
        return out

    def _of_repeated(
        self, op: str, mean: bool, x: Tensor, axes: tuple[int, ...], keepdims: bool, repeats: Shape
    ) -> Tensor | None:
        """The same of an expanded tensor: each number is read once. A sum is multiplied by how often they repeat."""
        if op in (PRODUCT, NORM):
            return None
        lengths = tuple(1 if axis in repeats else n for axis, n in enumerate(x.shape))
        found = self._folded(op, mean, x.strided(x.offset, lengths, x.strides), axes, True)
        if found is None:
            return None
        times = math.prod(x.shape[axis] for axis in repeats if axis in axes)
        if op == SUM and not mean and times > 1:
            found = self.elementwise("mul", found, float(times), out=found)
        kept = [axis for axis in range(x.ndim) if keepdims or axis not in axes]
        shape = tuple(1 if axis in axes else x.shape[axis] for axis in kept)
        steps = tuple(0 if axis in repeats else found.strides[axis] for axis in kept)
        view = found.strided(found.offset, shape, steps)
        return view if set(repeats) <= set(axes) else self.copied(view, range(len(shape)))


def _are_products_of_no_zero(products: Array, answer: Array) -> None:
    """A product that is a number other than 0 has no factor 0; NaN may be 0 times infinity."""
    answer[0] = (np.absolute(products) > 0).all()


_JOB = struct.Struct("4q").pack
"""A job's fields: plan, result, numbers, parts."""

_VARIANCE_JOB = struct.Struct("5q").pack
"""Plan, variances, means, numbers, parts."""

_RUNNING_JOB = struct.Struct("3q").pack


class _Plan:
    """How a tensor of some shape and strides is folded over some axes.

    Attributes:
        order: the axes as a copy has to have them first; None where there need be none.
        repeats: axes along which the numbers repeat.
        is_copy: whether each number is a result.
        loop: the compiled kernel; None where there is none for it.
        shape, strides, nbytes: of the result.
        record: the kernel's own.
        tasks: their number.
        words: 8-byte words for the parts of several threads.
    """

    order: Shape | None = None
    repeats: Shape = ()
    is_copy = False
    loop: machine.Loop | None = None

    def __init__(self, op: str, mean: bool, lie: tuple[Shape, Shape, Any], axes: tuple[int, ...], keep: bool) -> None:
        shape, strides, dtype = lie
        groups = _groups(shape, strides, axes)
        if 0 in shape:
            return
        self.shape, self.strides, size, elements = _result(shape, memory_order(shape, strides), axes, keep)
        if not groups:  # one number
            self.is_copy = op != NORM
            return
        if any(group.step == 0 for group in groups):
            self.repeats = tuple(axis for axis, n in enumerate(shape) if n != 1 and strides[axis] == 0)
            return
        inner = groups.pop()
        reduced, kept = ([g for g in groups if g.reduced is wanted] for wanted in (True, False))
        if inner.step != 1 or len(reduced) > 1 or len(kept) > 1:
            self.order = (*(axis for axis in range(len(shape)) if axis not in axes), *axes)
            return
        row, block = (reduced or [_NONE])[0], (kept or [_NONE])[0]
        self.is_copy = elements == 1 and op != NORM
        if self.is_copy:
            return
        self.nbytes = size * dtype.itemsize
        divisor = float(elements) if mean else 1.0
        bits = 8 * dtype.itemsize
        fold, given = folds.fold_of(op, bits), (block, row, inner.length, dtype.itemsize, divisor)
        kind = LINES if inner.reduced else COLUMNS
        if inner.reduced and row.length == 1 and are_short(block.length, inner.length, bits):
            kind = SHORT_LINES
            plan = axis_plan(block.length, inner.length, 1, PART)
            self.tasks, self.words = plan.tasks, 1
            self.record = tasks.Record((*plan, block.step * dtype.itemsize, divisor))
        elif inner.reduced:
            lines = _lines(*given)
            self.tasks, self.words, self.record = lines.tasks, fold_lines.words(fold, lines), tasks.Record(lines)
        else:
            columns = _columns(*given)
            self.tasks, self.words = columns.tasks, fold_columns.words(fold, columns)
            self.record = tasks.Record(columns)
        self.loop = _loop(op, bits, kind)

    def call(self, out: Tensor, elements: int) -> Call:
        """How a launch calls the loop, which gave a result from so many elements."""
        assert self.loop is not None
        job = (*tasks.words(self.record, 1, 1), parts())
        return call_of(self.loop, job, (out,), elements, self.tasks, self, parts=8 * self.words)


class _VariancePlan:
    """How the variances of a tensor of some shape and strides are taken over some axes.

    Attributes:
        order: the memory order in which x is read.
        loop: the compiled kernel; None where there are no elements.
        shape, strides: of the variances; kept, kept_strides: of the means; nbytes: of each.
        record, tasks: the kernel's own.
        words: 8-byte words for the parts of several threads.
    """

    loop: machine.Loop | None = None

    def __init__(self, lie: tuple[Shape, Shape, Any], axes: tuple[int, ...], correction: float, keepdims: bool) -> None:
        shape, strides, dtype = lie
        length, elements = math.prod(shape[axis] for axis in axes), math.prod(shape)
        if not elements:
            return
        self.order = memory_order(shape, strides)
        groups = _groups(shape, dense_strides(shape, self.order), axes)
        are_lines = not groups or groups[-1].reduced
        if len(groups) > (2 if are_lines else 3):  # neither lines nor columns of blocks
            self.order, are_lines = (*[a for a in self.order if a not in axes], *axes), True
        self.shape, self.strides, _, _ = _result(shape, self.order, axes, keepdims)
        self.kept, self.kept_strides, _, _ = _result(shape, self.order, axes, True)
        self.nbytes = elements // length * dtype.itemsize
        divisor, bits = float(length - correction) if length > correction else math.nan, 8 * dtype.itemsize
        columns = 1 if are_lines else groups[-1].length
        plan, kind = plan_and_kind(elements // length // columns, length, columns, PART, bits)
        if kind == LINES:
            lines, bunch = elements // length, max(1, PART // length)
            pieces = max(1, min(length // PART, MOST_PARTS // lines))
            self.tasks = -(-lines // bunch) if pieces == 1 else lines * pieces
            self.record = tasks.Record(VariancePlan(self.tasks, lines, length, bunch, pieces, divisor))
        else:
            self.tasks, self.record = plan.tasks, tasks.Record((*plan, divisor))
        self.words = 1 + 2 * self.tasks
        self.loop = _variance_loop(bits, kind)

    def call(self, results: tuple[Tensor, ...], elements: int) -> Call:
        """How a launch calls the loop, which gave results from so many elements."""
        assert self.loop is not None
        job = (*tasks.words(self.record, 2, 1), parts())
        return call_of(self.loop, job, results, elements, self.tasks, self, parts=8 * self.words)


@caches.kept
def _variance_plan(
    lie: tuple[Shape, Shape, Any], axes: tuple[int, ...], correction: float, keepdims: bool
) -> _VariancePlan:
    return _VariancePlan(lie, axes, correction, keepdims)


@cache
def _variance_loop(bits: int, kind: str) -> machine.Loop:
    return machine.loop(variances.lines_ir(bits) if kind == LINES else variances.columns_ir(bits, kind == SHORT_LINES))


class _RunningPlan:
    """How running sums of a dense tensor are made along an axis."""

    def __init__(self, shape: Shape, order: Shape, axis: int, dtype: np.dtype[Any]) -> None:
        place = order.index(axis)
        blocks, columns = (math.prod([shape[a] for a in part]) for part in (order[:place], order[place + 1 :]))
        bits = 8 * dtype.itemsize
        plan, kind = plan_and_kind(blocks, shape[axis], columns, PART, bits)
        self.record, self.tasks, self.loop = tasks.Record(plan), plan.tasks, _running_loop(bits, kind)

    def call(self, y: Tensor) -> Call:
        """How a launch calls the loop, which gave a result."""
        return call_of(self.loop, tasks.words(self.record, 1, 1), (y,), y.numel(), self.tasks, self)


@caches.kept
def _running_plan(shape: Shape, order: Shape, axis: int, dtype: np.dtype[Any]) -> _RunningPlan:
    return _RunningPlan(shape, order, axis, dtype)


@cache
def _running_loop(bits: int, kind: str) -> machine.Loop:
    return machine.loop(running.ir_of(bits, kind))


class _Group(NamedTuple):
    """Neighbouring axes in memory, all reduced or all kept, that are one axis of some length and step, in elements."""

    reduced: bool
    length: int
    step: int


_NONE = _Group(False, 1, 0)


@caches.kept
def _plan(op: str, mean: bool, lie: tuple[Shape, Shape, Any], axes: tuple[int, ...], keep: bool) -> _Plan:
    return _Plan(op, mean, lie, axes, keep)


@cache
def _loop(op: str, bits: int, kind: str) -> machine.Loop:
    """The kernel of a fold of lines or columns."""
    write = {LINES: fold_lines.ir_of, SHORT_LINES: fold_columns.short_lines_ir, COLUMNS: fold_columns.ir_of}[kind]
    return machine.loop(write(folds.fold_of(op, bits)))


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


def _lines(block: _Group, row: _Group, length: int, item: int, divisor: float) -> LinePlan:
    """Lines of segments of so many neighbouring numbers of ``item`` bytes."""
    lines, segments, work = block.length, row.length, row.length * length
    parts, cuts = 1, 0
    if work <= 2 * PART or lines >= MOST_PARTS:
        bunch = max(1, min(lines, PART // work))
        count = -(-lines // bunch)
    else:
        most = MOST_PARTS // lines
        if length > 2 * PART:
            bunch, cuts = 1, max(1, min(length // PART, most // segments))
        else:
            bunch, cuts = max(1, PART // length, -(-segments // most)), 1
        parts = -(-segments // bunch) * cuts
        bunch, count = (1, lines) if parts == 1 else (bunch, lines * parts)
    return LinePlan(count, divisor, lines, block.step * item, segments, row.step * item, length, bunch, cuts, parts)


def _columns(block: _Group, row: _Group, columns: int, item: int, divisor: float) -> ColumnPlan:
    """Blocks of rows of so many neighbouring columns."""
    strip = min(columns, STRIP)
    strips = -(-columns // strip)
    bunch = max(PART // strip, -(-row.length // max(1, MOST_PARTS // (block.length * strips))))
    parts = -(-row.length // bunch)
    count, step = block.length * strips * parts, row.step * item
    ahead = fold_columns.ahead(block.length * row.length * columns * item, step)
    return ColumnPlan(
        count, divisor, block.length, block.step * item, row.length, step, columns, bunch, strip, strips, parts, ahead
    )  # fmt: skip


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
