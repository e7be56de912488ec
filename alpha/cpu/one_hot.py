"""OneHotOperations: a row of zeros and a one for each label, written by a loop (``alpha.cpu.loops.marks``)."""

from __future__ import annotations

import math
import struct
import sys
from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import tapes, tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.fills import pattern
from alpha.cpu.launches import Call, call_of, constant, learn, of_result, of_tensor, verdict
from alpha.cpu.loops import blocks, machine, marks
from alpha.dtypes import default_int
from alpha.launches import ONE_HOT
from alpha.records import RangeCheck
from alpha.tensor import Tensor

SIZES = (4, 8)
"""Bytes of the numbers that the loop writes."""

TASK_BYTES = 1 << 16
"""Bytes that a task writes, about."""

_JOB = struct.Struct("4q8s").pack


class OneHotOperations(HostEngine):
    """Rows of numbers of 4 or 8 bytes."""

    def one_hot(self, labels: Tensor, classes: int, dtype: np.dtype[Any], check: RangeCheck) -> Tensor:
        (rows,) = labels.shape
        if not rows or not classes or dtype.itemsize not in SIZES:
            return super().one_hot(labels, classes, dtype, check)
        given, plan = self.dense(labels, (0,)), _plan(rows, classes, dtype.itemsize)
        out = Tensor(self.allocate(rows * classes * dtype.itemsize), 0, (rows, classes), (classes, 1), dtype)
        wrong = np.zeros(1, np.int64)
        job = _JOB(plan.record.address, out.storage.address, given.address, wrong.ctypes.data, pattern(1, dtype))
        tapes.kept(wrong)
        tasks.run(plan.loop, job, plan.tasks, self.threads)
        if wrong[0] and self.checking:
            array = HostEngine.array(self, given)  # a step that is captured would refuse it
            outside = np.flatnonzero((array < 0) | (array >= classes))
            if not outside.size:  # another thread has written to the labels since
                return self.one_hot(labels, classes, dtype, check)
            raise check.error(int(array[outside[0]]), int(outside[0]))
        if self.checking and given is labels and dtype == default_int:
            learn(ONE_HOT, self, lambda: plan.call(out), labels, classes)
        return out


class _Plan:
    """Rows of a number of classes, as tasks of the loop."""

    def __init__(self, rows: int, classes: int, item: int) -> None:
        self.record = tasks.Record((*blocks.plan(rows, classes * item, TASK_BYTES), *marks.Marks(classes)))
        self.tasks = self.record.tasks
        self.loop = _loop(8 * item)

    def call(self, out: Tensor) -> Call:
        """How a launch calls the loop, which gave such a result."""
        one = int.from_bytes(pattern(1, out.dtype), sys.byteorder, signed=True)
        words = (constant(self.record.address), of_result(), of_tensor(0), verdict(), constant(one))
        return call_of(self.loop, words, (out,), math.prod(out.shape), self.tasks, self)


@caches.kept
def _plan(rows: int, classes: int, item: int) -> _Plan:
    return _Plan(rows, classes, item)


@cache
def _loop(bits: int) -> machine.Loop:
    """The compiled loop."""
    return machine.loop(marks.ir_of(bits))
