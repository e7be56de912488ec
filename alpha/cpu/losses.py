"""LossOperations: softmax along an axis, and cross entropy, on the CPU engine, a row in the caches at a time."""

from __future__ import annotations

import ctypes
import math
import struct
from functools import cache
from typing import Any

import numpy as np
from numba import float64, int64, types

from alpha.arguments import Shape
from alpha.cpu import compile, workers
from alpha.cpu.base import HostEngine
from alpha.cpu.compile import Entry
from alpha.cpu.kernels import picks
from alpha.cpu.kernels import softmax as kernels
from alpha.dtypes import default_int
from alpha.errors import ShapeError
from alpha.records import RangeCheck
from alpha.tensor import Tensor

_REDUCTIONS = {"none": picks.NONE, "sum": picks.SUM, "mean": picks.MEAN}

_MARK = struct.Struct("5q8sq").pack

_NLL = struct.Struct("11q").pack

_TAGS = {4: np.float32(0), 8: np.float64(0)}
"""What tells the kernels a number's size."""

TASK = 1 << 13
"""Elements of a task, about."""


class LossOperations(HostEngine):
    """A row is a line of numbers along an axis, which lies dense, after a copy if need be; of logits, a sample."""

    def softmax(self, x: Tensor, axis: int, log: bool) -> Tensor:
        rows = self.dense(x, _innermost(x, axis))
        y = self.empty_like(rows)
        self._run_rows(kernels.softmax, rows, axis, int(log), rows, y)
        return self.dense(y, x.memory_order())

    def softmax_grad(self, dy: Tensor, y: Tensor, axis: int, log: bool) -> Tensor:
        order = _innermost(y, axis)
        rows, dy = self.dense(y, order), self.dense(dy, order)
        dx = self.empty_like(rows)
        self._run_rows(kernels.softmax_grad, rows, axis, int(log), dy, rows, dx)
        return self.dense(dx, y.memory_order())

    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        probabilities = self.empty(logits.shape, logits.dtype)
        return self._entropies(logits, labels, smoothing, probabilities.address), probabilities

    def cross_entropy_losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        return self._entropies(logits, labels, smoothing, 0)

    def _entropies(self, logits: Tensor, labels: Tensor, smoothing: float, probabilities: int) -> Tensor:
        """The rows' losses; ``probabilities``: the address to write these to, or 0."""
        _check("cross_entropy", logits, labels)
        logits, labels = self._in_order(logits), self._in_order(labels)
        losses = self.empty(labels.shape, logits.dtype)
        given = logits, self.array(labels), losses, probabilities
        self._run_rows(kernels.cross_entropy, logits, 1, float(smoothing), *given)
        return losses

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        _check("cross_entropy_grad", probabilities, labels)
        if scale.shape != labels.shape:
            raise ShapeError(f"[cross_entropy_grad] expected one scale per row, {labels.shape}, got {scale.shape}")
        p, labels, scale = (self._in_order(given) for given in (probabilities, labels, scale))
        out = self.empty(p.shape, p.dtype)
        self._run_rows(kernels.cross_entropy_grad, p, 1, float(smoothing), p, self.array(labels), scale, out)
        return out

    def nll_loss(
        self, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        count, classes = rows.shape
        item, (row_step, step) = rows.dtype.itemsize, rows.strides
        labels = self._in_order(labels)
        shape, strides = ((count,), (1,)) if reduction == "none" else ((), ())
        out = Tensor(self.allocate(count * item if shape else item), 0, shape, strides, rows.dtype)
        followed = Tensor(self.allocate(8 * (count + 1)), 0, (count,), (1,), default_int)
        job = _NLL(
            rows.address, row_step * item, step * item, count, classes, labels.address, followed.storage.address,
            ignore_index, self.checking, _REDUCTIONS[reduction], out.storage.address,
        )  # fmt: skip
        picks.nll[item].run(job, tasks=1, threads=1)
        kept = ctypes.c_int64.from_address(followed.storage.address + 8 * count).value
        if kept < 0:
            position = -1 - kept
            raise check.error(int(self.array(labels)[position]), position)
        return out, followed, 1.0 if reduction != "mean" else 1 / kept if kept else math.nan

    def nll_loss_grad(self, grad: Tensor, followed: Tensor, factor: Tensor | float, classes: int) -> Tensor:
        (rows,), item = followed.shape, grad.dtype.itemsize
        out = self.full((rows, classes), 0, grad.dtype)
        step = grad.strides[0] * item if grad.ndim else 0
        picks.nll_grad(
            _TAGS[item], item, grad.address, step, factor, rows, classes, followed.address, out.storage.address
        )
        return out

    def one_hot(self, labels: Tensor, classes: int, dtype: np.dtype[Any], check: RangeCheck) -> Tensor:
        (rows,), item = labels.shape, dtype.itemsize
        if not rows or not classes or item not in picks.mark:
            return super().one_hot(labels, classes, dtype, check)
        labels, out = self._in_order(labels), self.full((rows, classes), 0, dtype)
        wrong = np.full(2, -1, np.int64)  # a row, and its label
        one = np.ones(8 // item, dtype).tobytes()
        job = _MARK(labels.address, rows, classes, self.checking, out.storage.address, one, wrong.ctypes.data)
        picks.mark[item].run(job, tasks=1, threads=1)
        if wrong[0] >= 0:
            raise check.error(int(wrong[1]), int(wrong[0]))
        return out

    def _in_order(self, x: Tensor) -> Tensor:
        """The elements as the kernels index them: row-major."""
        return self.dense(x, range(x.ndim))

    def _run_rows(self, kernel: Any, x: Tensor, axis: int, setting: float, *given: Any) -> None:
        """Runs a kernel on the rows of x along an axis; tensors are given by their addresses."""
        columns, item = x.shape[axis], x.dtype.itemsize
        rows = x.numel() // columns if columns else 0
        bunch = max(1, TASK // max(1, columns))
        arguments = [one.address if isinstance(one, Tensor) else one for one in given]
        threads = max(1, min(self.threads, -(-rows // bunch)))
        workers.WORKERS.enter(_entry(kernel, x.dtype), threads, (1.0, setting, item, rows, columns, bunch, *arguments))


def _innermost(x: Tensor, axis: int) -> Shape:
    """The memory order of x, but with an axis innermost: its numbers then lie side by side."""
    return (*(other for other in x.memory_order() if other != axis), axis)


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or (rows.shape[0] and not rows.shape[1]):
        raise ShapeError(
            f"[{function}] expected rows (N, C), C >= 1, and labels (N,), got {rows.shape} and {labels.shape}"
        )


@cache
def _entry(kernel: Any, dtype: np.dtype[Any]) -> Entry:
    """A kernel for numbers of a dtype."""
    labels = types.Array(int64, 1, "C")
    given: tuple[Any, ...] = {
        kernels.softmax: (int64, int64),
        kernels.softmax_grad: (int64, int64, int64),
        kernels.cross_entropy: (int64, labels, int64, int64),
        kernels.cross_entropy_grad: (int64, labels, int64, int64),
    }[kernel]
    setting = int64 if kernel in (kernels.softmax, kernels.softmax_grad) else float64
    return compile.entry(kernel, dtype, setting, *[int64] * 4, *given)
