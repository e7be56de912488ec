"""FillOperations: tensors of one number, and progressions, on the CPU, written by loops of vectors."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import streaming, tasks
from alpha.cpu.base import SMALL_FILL, HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.launches import Call, call_of, constant, learn, of_number, of_result, verdict
from alpha.cpu.loops import diagonal, fill, machine, progression
from alpha.cpu.loops.elements import Element, element_of
from alpha.cpu.tasks import Record
from alpha.dtypes import ALL, is_float, is_stored, limits
from alpha.launches import EYE, FULL, FULL_LIKE
from alpha.records import Scalar
from alpha.tensor import Tensor, dense_strides

SHARED_BYTES = 1 << 20
"""Bytes from which workers are woken."""

_JOB = struct.Struct("qq8sq").pack
_PROGRESSION = struct.Struct("5q").pack, struct.Struct("3q2d").pack
"""The job of a progression, by whether it counts in floats."""

_DIAGONAL = struct.Struct("qq").pack

_NUMBERS = {dtype: struct.Struct(dtype.char).pack for dtype in ALL}
"""The bytes of a number of a dtype; struct.error or OverflowError for what it does not hold."""


class FillOperations(HostEngine):
    """New tensors of one number, or of a progression; a tensor that is there is filled by a copy of the number."""

    def full(
        self, shape: Sequence[int], value: Scalar, dtype: np.dtype[Any], order: Sequence[int] | None = None
    ) -> Tensor:
        shape = tuple(shape)
        if order is None:
            found: Tensor | None = FULL.launch(self, shape, value, dtype)
            if found is not None:
                return found
        nbytes = math.prod(shape) * dtype.itemsize
        storage = self.allocate(nbytes)
        self._repeat(pattern(value, dtype), storage.address, nbytes)
        out = Tensor(storage, 0, shape, dense_strides(shape, order), dtype)
        if order is None and nbytes:
            learn(FULL, self, lambda: _call(out), self, shape, value, dtype)
        return out

    def full_like(self, x: Tensor, value: Scalar, dtype: np.dtype[Any]) -> Tensor:
        out = self.full(x.shape, value, dtype, x.memory_order())
        if out.storage.nbytes and dtype == x.dtype:
            learn(FULL_LIKE, self, lambda: _call(out), x, value)
        return out

    def fill(self, out: Tensor, value: Scalar) -> None:
        elements = math.prod(out.shape)
        if elements > SMALL_FILL and not is_stored(out.dtype) and out.is_contiguous(out.memory_order()):
            self._repeat(pattern(value, out.dtype), out.address, elements * out.dtype.itemsize)
        else:
            super().fill(out, value)

    def _repeat(self, numbers: bytes, address: int, nbytes: int) -> None:
        """Writes a pattern of eight bytes again and again."""
        if not nbytes:
            return
        plan = _plan(nbytes)
        job = _JOB(plan.record.address, address, numbers, 0)
        loop = _loop(streaming.streams(nbytes) and address % ISA.bytes == 0)
        tasks.run(loop, job, plan.shared_tasks, self.threads)

    def eye(self, rows: int, columns: int, dtype: np.dtype[Any]) -> Tensor:
        out = self.empty((rows, columns), dtype)
        nbytes, address = out.storage.nbytes, out.storage.address
        if nbytes:
            plan = _diagonal(rows, columns, dtype)
            loop = _diagonal_loop(dtype.itemsize, streaming.streams(nbytes) and address % ISA.bytes == 0)
            tasks.run(loop, _DIAGONAL(plan.record.address, address), plan.shared_tasks, self.threads)
            learn(EYE, self, lambda: _call_of_eye(out), self, rows, columns, dtype)
        return out

    def progression(self, first: int | float, step: int | float, count: int, dtype: np.dtype[Any]) -> Tensor:
        in_floats, element = not isinstance(first, int), element_of(dtype)
        if not progression.serves(element, in_floats):
            return super().progression(first, step, count, dtype)
        out = self.empty((count,), dtype)
        if not count:
            return out
        second = first + step
        if in_floats:
            step = second - first
        parts = -(-count // progression.TASK)
        plan = _progression(parts)
        job = _PROGRESSION[in_floats](plan.address, out.storage.address, count, first, step)
        streams = streaming.streams(out.storage.nbytes) and out.storage.address % ISA.bytes == 0
        tasks.run(_progression_loop(in_floats, element, streams), job, parts, self.threads)
        if in_floats and count > 1:
            self.act(ctypes.memmove, out.storage.address + dtype.itemsize, pattern(second, dtype), dtype.itemsize)
        return out


def pattern(value: Scalar, dtype: np.dtype[Any]) -> bytes:
    """Eight bytes that repeat a number of a dtype; what does not fit becomes what NumPy makes of it."""
    try:
        return _NUMBERS[dtype](value) * (8 // dtype.itemsize)
    except (struct.error, OverflowError):
        number = np.empty(8 // dtype.itemsize, dtype)
        with np.errstate(all="ignore"):
            number.fill(value)
        return number.tobytes()


def _call(out: Tensor) -> Call:
    """How a launch fills such a tensor with any number that its dtype holds."""
    nbytes, dtype = out.storage.nbytes, out.dtype
    loop, plan = _loop(streaming.streams(nbytes)), _plan(nbytes, dtype)
    words = (constant(plan.record.address), of_result(), of_number(0), verdict())
    call = call_of(loop, words, (out,), math.prod(out.shape), plan.shared_tasks, plan)
    if is_float(dtype):
        return call
    least, most = limits(dtype)
    return call._replace(limits=(int(least), int(most)))


def _call_of_eye(out: Tensor) -> Call:
    """How a launch makes such a matrix."""
    nbytes, dtype = out.storage.nbytes, out.dtype
    loop, plan = _diagonal_loop(dtype.itemsize, streaming.streams(nbytes)), _diagonal(*out.shape, dtype)
    words = (constant(plan.record.address), of_result())
    return call_of(loop, words, (out,), math.prod(out.shape), plan.shared_tasks, plan)


class _Plan:
    """So many bytes, as tasks of the loop; few bytes are written by one thread."""

    def __init__(self, nbytes: int, dtype: np.dtype[Any] | None) -> None:
        """``dtype``: what the job's number becomes; without one it is the pattern itself."""
        tasks = -(-nbytes // fill.TASK_BYTES)
        bits = 64 if dtype is None else 8 * dtype.itemsize
        factor = sum([1 << place for place in range(0, 64, bits)])
        is_rounded = dtype is not None and is_float(dtype) and bits == 32
        self.shared_tasks = tasks if nbytes >= SHARED_BYTES else 1
        self.record = Record((tasks, nbytes, int(is_rounded), -1 if bits == 64 else (1 << bits) - 1, factor))


@caches.kept
def _plan(nbytes: int, dtype: np.dtype[Any] | None = None) -> _Plan:
    return _Plan(nbytes, dtype)


@cache
def _loop(streams: bool) -> machine.Loop:
    """The loop, which may write past the caches."""
    return machine.loop(fill.ir_of(streams))


class _DiagonalPlan:
    """A matrix with ones on its diagonal, as tasks of the loop; few bytes are written by one thread."""

    def __init__(self, rows: int, columns: int, dtype: np.dtype[Any]) -> None:
        nbytes, step = rows * columns * dtype.itemsize, (columns + 1) * dtype.itemsize
        tasks = -(-nbytes // diagonal.TASK_BYTES)
        bits = int.from_bytes(pattern(1, dtype), sys.byteorder, signed=True)
        self.shared_tasks = tasks if nbytes >= SHARED_BYTES else 1
        self.record = Record((tasks, nbytes, step, min(rows, columns) * step, bits))


@caches.kept
def _diagonal(rows: int, columns: int, dtype: np.dtype[Any]) -> _DiagonalPlan:
    return _DiagonalPlan(rows, columns, dtype)


@cache
def _diagonal_loop(itemsize: int, streams: bool) -> machine.Loop:
    """The loop of such a matrix; see ``alpha.cpu.loops.diagonal``."""
    return machine.loop(diagonal.ir_of(itemsize, streams))


@caches.kept
def _progression(parts: int) -> Record:
    """The plan of a progression: the number of its tasks."""
    return Record([parts])


@cache
def _progression_loop(in_floats: bool, element: Element, streams: bool) -> machine.Loop:
    """The loop of a progression; see ``alpha.cpu.loops.progression``."""
    return machine.loop(progression.ir_of(in_floats, element, streams))
