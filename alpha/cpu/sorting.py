"""SortOperations: float32 numbers sorted with their places as one integer each, by NumPy's sort with vectors."""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import numpy_threads, tasks
from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.loops import machine, sorting
from alpha.cpu.loops.axis import plan as axis_plan
from alpha.cpu.tasks import Record
from alpha.dtypes import default_int, float32, is_integer
from alpha.tensor import Tensor

TASK = 1 << 14
"""Elements of a task, about."""

LEAST_KEYS = 1 << 9
"""Integers from which they are sorted by keys."""

SHARED = 1 << 14
"""Elements from which several threads sort."""

_KEYS_JOB, _PLACES_JOB = struct.Struct("3q").pack, struct.Struct("5q").pack


class SortOperations(ArrayOperations):
    """A line of numbers lies dense, after a copy if need be."""

    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        if is_integer(x.dtype) and self._are_narrow(x):
            return self._sort_integers(x, axis)
        if x.dtype != float32 or not x.numel() or x.shape[axis] >= 2**32:
            return super().sort(x, axis)
        order = x.memory_order()
        lines = self.dense(x, (*[other for other in order if other != axis], axis))
        values, indices = self.empty_like(lines), self.empty_like(lines, default_int)
        count, length = x.numel() // x.shape[axis], x.shape[axis]
        plan, keys = _plan(count, length), self.empty((count, length), default_int)
        job = _KEYS_JOB(plan.record.address, keys.storage.address, lines.address)
        tasks.run(_loop("keys"), job, plan.tasks, self.threads)
        self.act(self._sort_lines, self.operand(keys))
        job = _PLACES_JOB(
            plan.record.address, values.storage.address, indices.storage.address, keys.storage.address, lines.address
        )
        tasks.run(_loop("places"), job, plan.tasks, self.threads)
        return self.dense(values, order), self.dense(indices, order)

    def _are_narrow(self, x: Tensor) -> bool:
        """Whether integers are worth being sorted with their places, and are of 32 bits, as the places are."""
        if x.numel() < LEAST_KEYS:
            return False
        array = self.array(x)
        return int(array.min()) >= -(2**31) and int(array.max()) < 2**31 and max(x.shape) < 2**32

    def _sort_integers(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Keys hold a number above and its place below."""
        order = (*[other for other in range(x.ndim) if other != axis], axis)
        lines = self.dense(x, order)
        keys = self.empty(x.shape, default_int, order)
        array, length = self.flat(keys).reshape(-1, x.shape[axis]), x.shape[axis]
        np.left_shift(self.flat(lines).reshape(-1, length), 32, out=array, dtype=np.int64)
        array |= np.arange(length)
        self._sort_lines(array)
        values = self.empty(x.shape, x.dtype, order)
        np.right_shift(array, 32, out=self.flat(values).reshape(-1, length), casting="unsafe")
        array &= 2**32 - 1
        return self.dense(values, x.memory_order()), self.dense(keys, x.memory_order())

    def _sort_lines(self, keys: np.ndarray[Any, Any]) -> None:
        """Sorts lines in place."""
        count = min(self.threads, len(keys)) if keys.size >= SHARED else 1
        if count == 1:
            keys.sort()
            return
        edges = [len(keys) * k // count for k in range(count + 1)]
        numpy_threads.share(np.ndarray.sort, [(keys[a:b],) for a, b in pairwise(edges)])


class _Plan:
    """Lines of numbers, as tasks of the loops."""

    def __init__(self, lines: int, length: int) -> None:
        plan = axis_plan(lines, length, 1, TASK)
        self.record, self.tasks = Record(plan), plan.tasks


@caches.kept
def _plan(lines: int, length: int) -> _Plan:
    return _Plan(lines, length)


@cache
def _loop(name: str) -> machine.Loop:
    return machine.loop(sorting.keys_ir() if name == "keys" else sorting.places_ir())
