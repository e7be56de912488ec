"""LossOperations: softmax along an axis, and cross entropy, on the CPU engine, a row in the caches at a time."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.kernels import picks
from alpha.cpu.launches import Call, call_of, constant, learn, of_result, of_tensor, verdict
from alpha.cpu.loops import axis as axes
from alpha.cpu.loops import entropy, machine, softmax
from alpha.cpu.loops.machine import Loop
from alpha.cpu.tasks import Record
from alpha.dtypes import default_int
from alpha.errors import ShapeError
from alpha.launches import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRAD,
    CROSS_ENTROPY_LOSSES,
    NLL_LOSS,
    SOFTMAX,
    SOFTMAX_GRAD,
    Launches,
)
from alpha.records import RangeCheck
from alpha.tensor import Tensor

_REDUCTIONS = {"none": picks.NONE, "sum": picks.SUM, "mean": picks.MEAN}

_NLL = struct.Struct("12q").pack

_TAGS = {4: np.float32(0), 8: np.float64(0)}
"""What tells the kernels a number's size."""

TASK = 1 << 13
"""Elements of a task, about."""


_SOFTMAX = struct.Struct("3q").pack

_SOFTMAX_GRAD = struct.Struct("4q").pack


def _put_gradients(item: int, grad: int, step: int, factor: Any, *rest: int) -> None:
    """Calls ``picks.nll_grad`` of numbers of so many bytes."""
    picks.nll_grad(_TAGS[item], item, grad, step, float(factor), *rest)


class _SoftmaxPlan:
    """How a dense tensor is normalised along an axis.

    Attributes:
        record: the loops' own; None where there are no elements.
        tasks: their number.
    """

    record: Record | None = None
    tasks = 0

    def __init__(self, shape: Shape, order: Shape, axis: int, dtype: np.dtype[Any], log: bool) -> None:
        if not math.prod(shape):
            return
        place = order.index(axis)
        blocks, columns = (math.prod([shape[a] for a in part]) for part in (order[:place], order[place + 1 :]))
        bits = 8 * dtype.itemsize
        plan, kind = axes.plan_and_kind(blocks, shape[axis], columns, TASK, bits)
        self.record, self.tasks = Record(plan), plan.tasks
        self._kind = bits, log, kind

    @property
    def loop(self) -> Loop:
        """The compiled loop of the forward."""
        return _softmax_loop(softmax.ir_of, *self._kind)

    @property
    def grad(self) -> Loop:
        """That of the gradient."""
        return _softmax_loop(softmax.grad_ir, *self._kind)

    def call(self, loop: Loop, tensors: int, out: Tensor) -> Call:
        """How a launch calls a loop of so many tensors, which gave a result."""
        assert self.record is not None
        job = tasks.words(self.record, 1, tensors)
        return call_of(loop, job, (out,), out.numel(), self.tasks, self)


@caches.kept
def _softmax_plan(shape: Shape, order: Shape, axis: int, dtype: np.dtype[Any], log: bool) -> _SoftmaxPlan:
    return _SoftmaxPlan(shape, order, axis, dtype, log)


@cache
def _softmax_loop(write: Callable[[int, bool, str], str], bits: int, log: bool, kind: str) -> Loop:
    return machine.loop(write(bits, log, kind))


class LossOperations(HostEngine):
    """A row is a line of numbers along an axis, which lies dense, after a copy if need be; of logits, a sample."""

    def softmax(self, x: Tensor, axis: int, log: bool) -> Tensor:
        found: Tensor | None = SOFTMAX.launch(x, axis, log)
        if found is not None:
            return found
        x = self.dense(x)
        y = self.empty_like(x)
        plan = _softmax_plan(x.shape, x.memory_order(), axis, x.dtype, log)
        if plan.record is not None:
            job = _SOFTMAX(plan.record.address, y.storage.address, x.address)
            tasks.run(plan.loop, job, plan.tasks, self.threads)
            learn(SOFTMAX, self, lambda: plan.call(plan.loop, 1, y), x, axis, log)
        return y

    def softmax_grad(self, dy: Tensor, y: Tensor, axis: int, log: bool) -> Tensor:
        found: Tensor | None = SOFTMAX_GRAD.launch(dy, y, axis, log)
        if found is not None:
            return found
        y = self.dense(y)
        order = y.memory_order()
        dy, dx = self.dense(dy, order), self.empty_like(y)
        plan = _softmax_plan(y.shape, order, axis, y.dtype, log)
        if plan.record is not None:
            job = _SOFTMAX_GRAD(plan.record.address, dx.storage.address, dy.address, y.address)
            tasks.run(plan.grad, job, plan.tasks, self.threads)
            learn(SOFTMAX_GRAD, self, lambda: plan.call(plan.grad, 2, dx), dy, y, axis, log)
        return dx

    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] | None = CROSS_ENTROPY.launch(logits, labels, smoothing)
        if found is not None:
            return found
        _check("cross_entropy", logits, labels)
        results = (self.empty(labels.shape, logits.dtype), self.empty(logits.shape, logits.dtype))
        self._run_rows(CROSS_ENTROPY, "stored", logits, results, (logits, labels), float(smoothing))
        return results

    def cross_entropy_losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        found: Tensor | None = CROSS_ENTROPY_LOSSES.launch(logits, labels, smoothing)
        if found is not None:
            return found
        _check("cross_entropy", logits, labels)
        losses = self.empty(labels.shape, logits.dtype)
        self._run_rows(CROSS_ENTROPY_LOSSES, "losses", logits, (losses,), (logits, labels), float(smoothing))
        return losses

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        found: Tensor | None = CROSS_ENTROPY_GRAD.launch(probabilities, labels, scale, smoothing)
        if found is not None:
            return found
        _check("cross_entropy_grad", probabilities, labels)
        if scale.shape != labels.shape:
            raise ShapeError(f"[cross_entropy_grad] expected one scale per row, {labels.shape}, got {scale.shape}")
        p, given = probabilities, (probabilities, labels, scale)
        out = self.empty(p.shape, p.dtype)
        self._run_rows(CROSS_ENTROPY_GRAD, "gradient", p, (out,), given, float(smoothing))
        return out

    def nll_loss(
        self, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        count, classes = rows.shape
        item, (row_step, step) = rows.dtype.itemsize, rows.strides
        labels = self._in_order(labels)
        out, followed = self._picked(rows, labels, ignore_index, reduction)
        kept = ctypes.c_int64.from_address(followed.storage.address + 8 * count).value
        if kept < 0:
            position = -1 - kept
            raise check.error(int(HostEngine.array(self, labels)[position]), position)
        if self.checking:
            words = (
                of_tensor(0), constant(row_step * item), constant(step * item), constant(count), constant(classes),
                of_tensor(1), of_result(1), constant(ignore_index), constant(1), constant(_REDUCTIONS[reduction]),
                of_result(), verdict(),
            )  # fmt: skip

            def call() -> Call:
                return call_of(picks.nll[item], words, (out,), count, 1, None, scratch=(8 * (count + 1),))

            learn(NLL_LOSS, self, call, rows, labels, ignore_index, reduction)
        return out, followed, 1.0 if reduction != "mean" else 1 / kept if kept else math.nan

    def nll_loss_grad(self, grad: Tensor, followed: Tensor, factor: Tensor | float, classes: int) -> Tensor:
        (rows,), item = followed.shape, grad.dtype.itemsize
        out = self.full((rows, classes), 0, grad.dtype)
        step = grad.strides[0] * item if grad.ndim else 0
        given = self.operand(factor) if isinstance(factor, Tensor) else factor
        self.act(_put_gradients, item, grad.address, step, given, rows, classes, followed.address, out.storage.address)
        return out

    def _picked(self, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str) -> tuple[Tensor, Tensor]:
        """The losses, and the labels that are followed; what ``picks.nll`` counts is right behind these."""
        (count, classes), item, (row_step, step) = rows.shape, rows.dtype.itemsize, rows.strides
        shape, strides = ((count,), (1,)) if reduction == "none" else ((), ())
        out = Tensor(self.allocate(count * item if shape else item), 0, shape, strides, rows.dtype)
        followed = Tensor(self.allocate(8 * (count + 1)), 0, (count,), (1,), default_int)
        job = _NLL(
            rows.address, row_step * item, step * item, count, classes, labels.address, followed.storage.address,
            ignore_index, self.checking, _REDUCTIONS[reduction], out.storage.address,
            followed.storage.address + 8 * count,
        )  # fmt: skip
        picks.nll[item].run(job, tasks=1, threads=1)
        return out, followed

    def _in_order(self, x: Tensor) -> Tensor:
        """The elements as the kernels index them: row-major."""
        return self.dense(x, range(x.ndim))

    def _run_rows(
        self,
        known: Launches,
        kind: str,
        rows: Tensor,
        results: tuple[Tensor, ...],
        given: tuple[Tensor, ...],
        smoothing: float,
    ) -> None:
        """Runs a loop on the rows of logits or probabilities, and makes the operation's launches know how."""
        if not rows.numel():
            return
        plan, loop = _rows_plan(rows.shape), _entropy_loop(kind, 8 * rows.dtype.itemsize)
        dense = [self._in_order(x) for x in given]
        addresses = [x.address for x in (*results, *dense)]
        job = struct.pack(f"{1 + len(addresses)}qd", plan.record.address, *addresses, smoothing)
        tasks.run(loop, job, plan.tasks, self.threads)
        words = tasks.words(plan.record, len(results), len(given), 0)
        learn(known, self, lambda: call_of(loop, words, results, rows.numel(), plan.tasks, plan), *dense, smoothing)


class _RowsPlan:
    """Rows of logits, as tasks of the loops."""

    def __init__(self, shape: Shape) -> None:
        rows, classes = shape
        plan = axes.plan(rows, classes, 1, TASK)
        self.record, self.tasks = Record(plan), plan.tasks


@caches.kept
def _rows_plan(shape: Shape) -> _RowsPlan:
    return _RowsPlan(shape)


@cache
def _entropy_loop(kind: str, bits: int) -> Loop:
    return machine.loop(entropy.grad_ir(bits) if kind == "gradient" else entropy.ir_of(bits, kind == "stored"))


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or (rows.shape[0] and not rows.shape[1]):
        raise ShapeError(
            f"[{function}] expected rows (N, C), C >= 1, and labels (N,), got {rows.shape} and {labels.shape}"
        )
