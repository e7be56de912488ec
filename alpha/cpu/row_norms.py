"""RowNormOperations: layer and RMS norm on the CPU engine, one pass over memory each."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tapes, tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.launches import call_of, learn
from alpha.cpu.loops import axis, machine, short_row_norms
from alpha.cpu.loops import row_norms as loops
from alpha.cpu.loops.machine import Loop
from alpha.cpu.loops.parts import equal_parts
from alpha.cpu.loops.row_norms import RowPlan, Variant
from alpha.cpu.tasks import Record, address_of
from alpha.launches import ROW_NORM
from alpha.tensor import Tensor, memory_order

TASK = 1 << 14
"""Elements of a task of the forward pass, about."""

GRADIENT_ROWS, GRADIENT_TASKS = 64, 32
"""Rows of a task of the gradient at least, and its most tasks: each sums the weight's gradient by itself."""

_JOB, _GRADIENT_JOB = struct.Struct("6qd").pack, struct.Struct("9q").pack


class RowNormOperations(HostEngine):
    """The last axes are a row, which lies dense; rows come in any order."""

    def row_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float, centered: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        found = ROW_NORM.launch(x, weight, bias, axes, eps, centered)
        if found is not None:
            return found[0], found[1:]
        plan = _plan(x.shape, x.strides, axes, 8 * x.dtype.itemsize)
        x, weight, bias = self.dense(x, plan.order), self.parameter(weight), self.parameter(bias)
        y, statistics = self.empty_like(x), self.empty((plan.rows, 2), _FLOAT64)
        loop = _loop(Variant(8 * x.dtype.itemsize, centered, weight is not None, bias is not None), plan.is_short)
        job = _JOB(
            plan.record.address, y.storage.address, statistics.storage.address, x.address, address_of(weight),
            address_of(bias), eps,
        )  # fmt: skip
        tasks.run(loop, job, plan.tasks, self.threads)
        words, results = tasks.words(plan.record, 2, 3, 0), (y, statistics)
        learn(
            ROW_NORM, self, lambda: call_of(loop, words, results, x.numel(), plan.tasks, plan),
            x, weight, bias, axes, eps, centered,
        )  # fmt: skip
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
        plan = _plan(x.shape, x.strides, axes, 8 * x.dtype.itemsize)
        x, dy, shape = self.dense(x, plan.order), self.dense(dy, plan.order), x.shape[-axes:]
        dx, weight = self.empty_like(x), self.parameter(weight)
        dweight, dbias = (self.empty(shape, x.dtype) if needed else None for needed in needs[1:])
        has_shares = needs[1] or needs[2]
        loop = _gradient_loop(Variant(8 * x.dtype.itemsize, centered, weight is not None, has_shares), plan.is_short)
        parts = tapes.zeros(plan.words if has_shares else 0)
        job = _GRADIENT_JOB(
            plan.gradient.address, dx.storage.address, address_of(dweight), address_of(dbias), dy.address, x.address,
            address_of(weight), statistics[0].address, parts.ctypes.data,
        )  # fmt: skip
        tasks.run(loop, job, plan.gradient_tasks, self.threads)
        return dx if needs[0] else None, dweight, dbias


_FLOAT64 = np.dtype(np.float64)


class _Plan:
    """How a tensor of some shape and strides is normalised.

    Attributes:
        order: the memory order in which it is: its own where rows lie dense in it, else row-major.
        rows: their number.
        is_short: whether they are transposed.
        record, tasks: of the forward.
        gradient, gradient_tasks, words: of the gradient, with the 8-byte words that its parts take.
    """

    def __init__(self, shape: Shape, strides: Shape, axes: int, bits: int) -> None:
        order, kept = memory_order(shape, strides), len(shape) - axes
        rows_are_dense = order[kept:] == tuple(range(kept, len(shape)))
        self.order = order if rows_are_dense else tuple(range(len(shape)))
        columns, self.rows = math.prod(shape[kept:]), math.prod(shape[:kept])
        self.is_short = axis.are_short(self.rows, columns, bits)
        self.tasks = -(-self.rows // equal_parts(self.rows, TASK // columns))
        self.record = Record(RowPlan(self.tasks, self.rows, columns))
        self.gradient_tasks = max(1, min(GRADIENT_TASKS, self.rows // GRADIENT_ROWS))
        self.gradient = Record(RowPlan(self.gradient_tasks, self.rows, columns))
        self.words = loops.words(columns, self.gradient_tasks)


@caches.kept
def _plan(shape: Shape, strides: Shape, axes: int, bits: int) -> _Plan:
    return _Plan(shape, strides, axes, bits)


@cache
def _loop(variant: Variant, is_short: bool) -> Loop:
    return machine.loop((short_row_norms if is_short else loops).ir_of(variant))


@cache
def _gradient_loop(variant: Variant, is_short: bool) -> Loop:
    return machine.loop((short_row_norms if is_short else loops).grad_ir(variant))
